//! Stand-ins for those who make a cluster out of an API server: each a task of its own that writes
//! what the real one writes, in the same number of requests.

mod devices;
mod driver;
mod extended;
mod follow;
mod hands;
mod kubelet;
mod scheduler;

pub use driver::Driver;
pub use kubelet::{HOLD, Kubelet, Pace};
pub use scheduler::Scheduler;
