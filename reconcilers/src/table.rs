//! The tables of controllers: the one place that puts the controllers of a process together.

use std::sync::Arc;

use dragoman_machinery::controller::ControllerSpec;

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
