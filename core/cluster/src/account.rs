//! Whether a Pod fits on a node, in words for its tenant.

use dragoman_accounting::ledger::fit::{Candidate, Fit, Headroom, Refusal};
use dragoman_accounting::ledger::{NodeLedger, words};
use dragoman_accounting::resource::Resource;

/// The answer of a ledger about a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Account {
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
pub fn account(ledger: &NodeLedger, candidate: &Candidate) -> Account {
    match ledger.fits(candidate) {
        Fit::Yes => Account::Fits,
        Fit::Missing(missing) => {
            let of = |(resource, count)| {
                let words = |amount: i128| words::quantity(resource, amount).0;
                let numbers = match ledger.headroom(resource) {
                    Headroom::Left(left) => {
                        let all = ledger.allocatable(resource).into();
                        let (needed, left, all) = (words(left + count), words(left), words(all));
                        format!(" ({needed} needed, {left} of {all} left)")
                    }
                    Headroom::Unknown => String::new(),
                };
                format!("{} of {resource} is missing{numbers}", words(count))
            };
            Account::Refused(missing.iter().map(of).collect::<Vec<_>>().join("; "))
        }
        Fit::Never(resources) => {
            let has = |resource: &Resource| {
                let all = words::quantity(*resource, ledger.allocatable(*resource).into()).0;
                format!("{resource} (it has {all})")
            };
            let resources: Vec<String> = resources.iter().map(has).collect();
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
