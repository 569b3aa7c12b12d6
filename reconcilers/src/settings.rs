//! Settings of controllers: each declares its own, as flags of the command line and fields of a file, beside its row in the table.

use std::time::Duration;

use clap::Args;
use dragoman_machinery::controller::Setting;
use serde::{Deserialize, Serialize};

use dragoman_crds::protocol::{self, LaterGates};

/// The setting that the controllers of claims and of gates share.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[group(skip)]
pub(crate) struct DefaultAllocator {
    /// The allocator of claims of gated Pods that name none; without it the gate of such a Pod is opened at
    /// once.
    #[arg(long, value_name = "NAME")]
    default_allocator: Option<Box<str>>,
}

impl DefaultAllocator {
    /// The name of the allocator.
    ///
    /// # Errors
    /// It is no name that a label can have.
    pub(crate) fn name(self) -> Result<Option<Box<str>>, String> {
        self.default_allocator.map(|name| allocator_name("default-allocator", name)).transpose()
    }
}

/// The settings that a type declares, for the row of its controller.
pub(crate) fn declared<T: Args>() -> Vec<Setting> {
    let command = T::augment_args(clap::Command::new("settings"));
    let setting = |argument: &clap::Arg| {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        argument.get_long().map(|name| Setting { name: name.to_owned(), help })
    };
    command.get_arguments().filter_map(setting).collect()
}

/// A number of seconds.
pub(crate) fn seconds(count: Option<u32>) -> Option<Duration> {
    count.map(|seconds| Duration::from_secs(seconds.into()))
}

/// The name of an allocator, of the setting `setting`.
///
/// # Errors
/// It is no name that a label can have.
pub(crate) fn allocator_name(setting: &str, name: Box<str>) -> Result<Box<str>, String> {
    if protocol::is_allocator_name(&name) {
        Ok(name)
    } else {
        Err(format!("--{setting} {name:?}: {}", protocol::ALLOCATOR_NAME_RULE))
    }
}

/// The gates of other controllers that are opened after ours.
///
/// # Errors
/// A name is that of our own gate, or of none that a Pod can have.
pub(crate) fn later_gates(names: Option<Vec<Box<str>>>) -> Result<LaterGates, String> {
    let names = names.unwrap_or_default();
    for name in &names {
        let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
        if name.is_empty() || !name.chars().all(is_of_a_name) {
            return Err(format!("--later-gates: {name:?} is no name of a scheduling gate"));
        }
        if **name == *protocol::GATE {
            return Err(format!("--later-gates: {name} does not come after itself"));
        }
    }
    Ok(names)
}
