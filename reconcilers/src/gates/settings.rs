//! Settings of the gate controller.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::controller::Options;
use crate::settings::{later_gates, seconds};

/// Settings of the controller, in flags, variables or a file.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[group(skip)]
pub struct Settings {
    /// Open the gate of a Pod that has waited for its allocator for this number of seconds, so that an autoscaler
    /// sees the Pod; kube-scheduler then allocates its claims. Off by default.
    #[arg(long, value_name = "SECONDS")]
    let_go_after: Option<u32>,
    /// Delete a Pod that kube-scheduler could not bind for so many seconds after its gate was opened, if its
    /// controller makes another one. Off by default; needs the rights of `dragoman rbac delete-unbound`.
    #[arg(long, value_name = "SECONDS")]
    delete_unbound_after: Option<u32>,
    /// Scheduling gates of other controllers that are opened after ours, separated by commas; no devices are taken for a Pod
    /// while any other gate is closed. Allocators have to know them, too.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    later_gates: Option<Vec<Box<str>>>,
}

impl Settings {
    /// The options of the controller; `default_allocator` is that of claims of gated Pods that name none.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    pub fn options(self, default_allocator: Option<Box<str>>) -> Result<Options, String> {
        Ok(Options {
            default_allocator,
            let_go_after: seconds(self.let_go_after),
            delete_unbound_after: seconds(self.delete_unbound_after),
            later_gates: later_gates(self.later_gates)?,
        })
    }
}
