//! Settings of the claim lifecycle controller.

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::claim_body::Birth;
use super::controller::Options;
use super::reclaim::Reclaim;
use crate::settings::seconds;

/// A claim is allocated, then it is reserved: an allocator may do so in two writes.
const LEAST_IDLE: Duration = Duration::from_secs(10);

/// Settings of the controller, in flags, variables or a file.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[group(skip)]
pub struct Settings {
    /// Create claims with the delete-protection finalizer: one API write less per
    /// Pod, but a namespace of unscheduled Pods cannot be deleted while we are down.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    born_protected: Option<bool>,
    /// Release claims that are allocated and reserved for no consumer for longer than --idle-after. Off by default: they
    /// are reported.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    reclaim: Option<bool>,
    /// After so many seconds without a consumer an allocated claim is idle [default: 3600].
    #[arg(long, value_name = "SECONDS")]
    idle_after: Option<u32>,
    /// Hold a claim for so many seconds after its Pod vanished from a node without an end, as after a forced
    /// deletion, unless the node is gone or out of service before: kubelet may still run the Pod. Off by default.
    #[arg(long, value_name = "SECONDS")]
    hold_vanished_for: Option<u32>,
}

impl Settings {
    /// The options of the controller; `default_allocator` is that of claims of gated Pods that name none.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    pub fn options(self, default_allocator: Option<Box<str>>) -> Result<Options, String> {
        let default = Reclaim::default();
        let reclaim = Reclaim {
            idle_for: seconds(self.idle_after).unwrap_or(default.idle_for),
            release: self.reclaim.unwrap_or(default.release),
            guard: seconds(self.hold_vanished_for),
        };
        if reclaim.idle_for < LEAST_IDLE {
            let least = LEAST_IDLE.as_secs();
            return Err(format!(
                "--idle-after: an allocator may need {least} seconds to reserve what it allocated"
            ));
        }
        let birth = Birth { protected: self.born_protected.unwrap_or(false), default_allocator };
        Ok(Options { birth, reclaim })
    }
}
