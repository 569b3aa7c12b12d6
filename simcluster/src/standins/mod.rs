//! Stand-ins for the other components of a cluster. Each is a task that writes what the real component
//! writes, in the same number of requests.

mod client;
mod devices;
mod driver;
mod extended;
mod follow;
mod kubelet;
mod lines;
mod scheduler;

pub use driver::Driver;
pub use kubelet::{HOLD, Kubelet, Pace, REAP, Refusals};
pub use scheduler::Scheduler;
