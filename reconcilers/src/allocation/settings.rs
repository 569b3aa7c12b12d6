//! Settings of the allocation controller.

use clap::{Args, ValueEnum};
use dragoman_allocator::{Alignment, Choice, Policy};
use serde::{Deserialize, Serialize};

use super::controller::Options;
use crate::settings::{allocator_name, later_gates};

/// Settings of the controller, in flags, variables or a file.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[group(skip)]
pub struct Settings {
    /// Name of the allocator: it allocates the claims whose label dragoman.dev/allocator names it [default: dragoman].
    #[arg(long)]
    name: Option<Box<str>>,
    /// Order of nodes that a Pod prefers equally [default: pack].
    #[arg(long, value_enum)]
    order: Option<NodeOrder>,
    /// Which device a claim gets where several free ones of a node satisfy its request [default: best-fit].
    #[arg(long, value_enum)]
    choose: Option<DeviceChoice>,
    /// Whether a Pod gets devices, over all its claims, on one PCIe root or else on one NUMA node, where drivers publish these
    /// [default: preferred].
    #[arg(long, value_enum)]
    align: Option<DeviceAlignment>,
    /// Scheduling gates of other controllers that are opened after that of Dragoman, separated by commas; no devices are taken
    /// for a Pod while any other gate is closed.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    later_gates: Option<Vec<Box<str>>>,
}

/// The order of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeOrder {
    /// Nodes with few free devices first.
    Pack,
    /// Nodes with many free devices first.
    Spread,
}

impl From<NodeOrder> for Policy {
    fn from(order: NodeOrder) -> Self {
        match order {
            NodeOrder::Pack => Self::Pack,
            NodeOrder::Spread => Self::Spread,
        }
    }
}

/// The choice among free devices that satisfy a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceChoice {
    /// The first, as kube-scheduler does.
    FirstFit,
    /// The one whose allocation leaves most available: of partitions, shares and whole devices.
    BestFit,
}

impl From<DeviceChoice> for Choice {
    fn from(choice: DeviceChoice) -> Self {
        match choice {
            DeviceChoice::FirstFit => Self::FirstFit,
            DeviceChoice::BestFit => Self::BestFit,
        }
    }
}

/// The alignment of the devices of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceAlignment {
    /// As the devices come.
    None,
    /// Aligned devices, if there are any for the same alternatives of the requests.
    Preferred,
}

impl From<DeviceAlignment> for Alignment {
    fn from(align: DeviceAlignment) -> Self {
        match align {
            DeviceAlignment::None => Self::None,
            DeviceAlignment::Preferred => Self::Preferred,
        }
    }
}

impl Settings {
    /// The options of the controller.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    pub fn options(self) -> Result<Options, String> {
        let default = Options::default();
        Ok(Options {
            name: self.name.map_or(Ok(default.name), |name| allocator_name("name", name))?,
            order: self.order.map_or(default.order, Into::into),
            choice: self.choose.map_or(default.choice, Into::into),
            align: self.align.map_or(default.align, Into::into),
            later_gates: later_gates(self.later_gates)?,
        })
    }
}
