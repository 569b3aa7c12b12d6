//! Whether a Pod fits on a node, in words for its tenant.

use dragoman_accounting::ledger::fit::{Candidate, Fit, Refusal};
use dragoman_accounting::ledger::{NodeLedger, words};

/// The answer of a ledger about a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Account {
    /// The Pod fits.
    Fits,
    /// The Pod does not fit; the text names the amounts that are missing.
    Refused(String),
    /// Claims and containers take more than the Pod-level resources of the Pod: no node takes it with these devices.
    OverBudget(String),
    /// The answer is not known; the text names the missing fact.
    Unknown(String),
}

/// Asks the ledger of a node, with everything that is assumed there, about a Pod. The answer is for the
/// tenant of the Pod: it names no Pod and no claim of others.
pub(crate) fn account(ledger: &NodeLedger, candidate: &Candidate) -> Account {
    match ledger.fits(candidate) {
        Fit::Yes => Account::Fits,
        Fit::Missing(missing) => {
            let of = |(resource, count)| {
                let missing = words::quantity(resource, count).0;
                format!("{missing} of {resource} is missing")
            };
            Account::Refused(missing.iter().map(of).collect::<Vec<_>>().join("; "))
        }
        Fit::Never(resources) => {
            let resources: Vec<String> = resources.iter().map(ToString::to_string).collect();
            Account::Refused(format!("the node is too small: {}", resources.join(", ")))
        }
        Fit::Unknown(resources) => {
            let resources: Vec<String> = resources.iter().map(ToString::to_string).collect();
            Account::Unknown(format!("it is not known what the node has left of {}", resources.join(", ")))
        }
        Fit::Refused(refusals) => {
            let said: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            let is_unknown = refusals.iter().any(|refusal| matches!(refusal, Refusal::Unaccounted(_)));
            let said = said.join("; ");
            let is_over_budget = refusals.iter().any(|refusal| matches!(refusal, Refusal::OverBudget(_)));
            match (is_unknown, is_over_budget) {
                (true, _) => Account::Unknown(said),
                (false, true) => Account::OverBudget(said),
                (false, false) => Account::Refused(said),
            }
        }
    }
}
