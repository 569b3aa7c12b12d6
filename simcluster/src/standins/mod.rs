//! Stand-ins for the other components of a cluster. Each is a task that writes what the real component
//! writes, in the same number of requests.

mod client;
mod devices;
mod driver;
mod extended;
mod follow;

mod kubelet;
mod scheduler;

pub use driver::Driver;
pub use kubelet::{HOLD, Kubelet, Pace};
pub use scheduler::Scheduler;
