//! Runtime glue of Dragoman, and the only crate that touches the kube client.
//!
//! The way of a change: [`watch`] keeps an index in step with the API and marks
//! keys dirty in a [`queue`]; [`work`] takes them to a reconciler, which decides on
//! plain data and sends [`write`]s; [`expectations`] hold the key back until the
//! index has seen them. Around it: the two clients ([`connect`], [`api`]),
//! [`discovery`], the [`lease`], [`events`], [`rights`], [`supervise`], [`admin`]
//! and [`metrics`].

pub mod admin;
pub mod api;
pub mod clock;
pub mod connect;
pub mod discovery;
pub mod events;
pub mod expectations;
pub mod kind;
pub mod lease;
pub mod metrics;
pub mod queue;
pub mod refusal;
pub mod rights;
pub mod supervise;
pub mod watch;
pub mod work;
pub mod write;
