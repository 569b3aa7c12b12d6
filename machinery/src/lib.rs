//! Runtime glue of Dragoman, and the only crate that touches the kube client.
//!
//! The way of a change: [`watch`] keeps the indexes of the controllers in step with the API and
//! marks keys dirty in a [`queue`]; the workers of the [`controller`] kit take them to a reconciler,
//! which decides on plain data and sends [`write`]s; [`expectations`] hold a key back until the
//! index has seen them. Around it: the two clients ([`connect`], [`api`]), [`discovery`], the
//! [`lease`], [`events`], [`rights`], [`supervise`], [`admin`], [`metrics`], and what the process itself
//! takes: [`process`], [`stall`]; [`trace`] names spans.

pub mod admin;
pub mod api;
pub mod backoff;
mod bounds;
pub mod clock;
pub mod connect;
pub mod controller;
pub mod discovery;
pub mod events;
pub mod expectations;
pub mod kind;
pub mod lease;
pub mod metrics;
pub mod mode;
pub mod process;
mod protobuf;
pub mod queue;
pub mod refusal;
pub mod rights;
pub mod stall;
pub mod supervise;
pub mod times;
pub mod trace;
pub mod watch;
pub mod write;
