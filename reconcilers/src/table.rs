//! The tables of controllers: the one place that puts the controllers of a process together.

use std::collections::BTreeSet;
use std::sync::Arc;

use clap::Args;
use dragoman_machinery::controller::ControllerSpec;
use serde::{Deserialize, Serialize};

use crate::settings::DefaultAllocator;
use crate::{allocation, claim_lifecycle, gates, holders, ledger, pod_status};

/// Options of the controllers of the operator.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// About the life of claims.
    pub claim_lifecycle: claim_lifecycle::Options,
    /// About the published ledgers.
    pub ledger: ledger::Options,
    /// About claim gates.
    pub gates: gates::Options,
}

impl Options {
    /// Claims of gated Pods that name no allocator get this one.
    #[must_use]
    pub fn with_allocator(name: &str) -> Self {
        let mut options = Self::default();
        options.claim_lifecycle.birth.default_allocator = Some(name.into());
        options.gates.default_allocator = Some(name.into());
        options
    }
}

/// Settings of the controllers of the operator, in flags, variables or a file.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[group(skip)]
pub struct Settings {
    #[command(flatten)]
    #[serde(flatten)]
    claim_lifecycle: claim_lifecycle::Settings,
    #[command(flatten)]
    #[serde(flatten)]
    default_allocator: DefaultAllocator,
    #[command(flatten)]
    #[serde(flatten)]
    gates: gates::Settings,
    #[command(flatten)]
    #[serde(flatten)]
    ledger: ledger::Settings,
}

impl Settings {
    /// The settings that are set, by the names of their flags.
    pub fn given(&self) -> BTreeSet<String> {
        let serde_json::Value::Object(settings) = serde_json::to_value(self).unwrap_or_default() else {
            return BTreeSet::new();
        };
        settings.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| flag(&name)).collect()
    }

    /// The options of the controllers.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    pub fn options(self) -> Result<Options, String> {
        let default_allocator = self.default_allocator.name()?;
        Ok(Options {
            claim_lifecycle: self.claim_lifecycle.options(default_allocator.clone())?,
            ledger: self.ledger.options()?,
            gates: self.gates.options(default_allocator)?,
        })
    }
}

/// The flag of a field of a file: `let-go-after` of `letGoAfter`.
fn flag(field: &str) -> String {
    let split = |c: char| if c.is_ascii_uppercase() { vec!['-', c.to_ascii_lowercase()] } else { vec![c] };
    field.chars().flat_map(split).collect()
}

/// Every controller of the operator, a row each. Their indexes are read together ([`Indexes`](crate::indexes::Indexes)).
pub fn operator(options: Options) -> Vec<ControllerSpec> {
    let publisher = Arc::<pod_status::Publisher>::default();
    vec![
        claim_lifecycle::spec(options.claim_lifecycle),
        ledger::spec(options.ledger),
        pod_status::spec(Arc::clone(&publisher)),
        holders::spec(Arc::clone(&publisher)),
        gates::spec(options.gates, publisher),
    ]
}

/// Those of [`operator`] that run where nothing is chosen.
pub fn by_default(options: Options) -> Vec<ControllerSpec> {
    let mut table = operator(options);
    table.retain(|spec| spec.on_by_default);
    table
}

/// The controllers of the process `dragoman allocator`.
pub fn allocator(options: allocation::Options) -> Vec<ControllerSpec> {
    vec![allocation::spec(options)]
}
