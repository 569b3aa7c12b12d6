//! Exact Kubernetes quantities: `500m`, `1.5Gi`, `2e3`.
//!
//! [`Decimal`] is the number: exact, never a float, with arithmetic that says when a
//! result cannot be held. [`Quantity`] is a number with the notation it was written in,
//! parsed and printed as the API does (`k8s.io/apimachinery/pkg/api/resource`).
//! [`capacity`] says how much of a shared device's capacity a request consumes.

pub mod capacity;
mod decimal;
mod parse;
mod print;
mod quantity;

pub use decimal::{Decimal, Overflow};
pub use parse::ParseError;
pub use quantity::{Notation, Quantity};
