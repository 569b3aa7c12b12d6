//! A Kubernetes API server in process, with stand-ins for scheduler, kubelet and driver: a whole cluster on a
//! laptop, and a laboratory for faults.
//!
//! It implements the real semantics of the API that controllers, the stand-ins and kubectl use. Any other
//! request is refused with a message that names what is not simulated. The conformance lane of `e2e` sends
//! the same requests to it and to a real kube-apiserver and compares the answers.

#![expect(
    clippy::indexing_slicing,
    reason = "reading a field of JSON that is not there gives null; lists are not read by number"
)]
#![expect(clippy::similar_names, reason = "what is patched and the patch, what is applied and who applies")]

mod api;
mod api_handle;
mod clock;
mod faults;
mod kinds;
mod listen;
mod patch;
mod promises;
mod protobuf;
mod schema;
mod standins;

pub use api::{
    Answer, ApiServer, Body, HistoryStep, LoadError, Query, Referee, Refused, Request, Status, User, Watch,
    Write,
};
pub use api_handle::{ApiHandle, Broken, ResponseBody};
pub use clock::Clock;
pub use faults::{Fault, FaultInjector, Rival, Schedule};
pub use kinds::{Profile, Resource};
pub use listen::{ListenError, Listening};
pub use promises::Promises;
pub use standins::{Driver, HOLD, Kubelet, Pace, REAP, Refusals, Scheduler};
