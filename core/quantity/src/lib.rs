//! Exact Kubernetes quantities: `500m`, `1.5Gi`, `2e3`.
//!
//! [`Decimal`] is an exact number, never a float. Its arithmetic fails if a result cannot be held.
//! [`Quantity`] is a number with its notation, parsed and printed as the API does
//! (`k8s.io/apimachinery/pkg/api/resource`). [`QuantityText`] is not parsed yet. [`capacity`] has the rounding of consumable capacity.

pub mod capacity;
mod decimal;
mod parse;
mod print;
mod quantity;
mod text;

pub use decimal::{Decimal, Overflow};
pub use parse::ParseError;
pub use quantity::{Notation, Quantity};
pub use text::QuantityText;
