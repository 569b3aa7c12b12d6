//! Results of a pass: plain data, for metrics, logs and Events.

use dragoman_machinery::controller::{Failure, Outcome};
use dragoman_machinery::refusal::{Refusal, Retry};
use dragoman_objects::ConsumerReference;
use jiff::Timestamp;

use super::plan_claim::ClaimStep;
use super::quota::CreationOutcome;
use super::reclaim::Vanished;

/// Everything that a pass has to tell, in order.
pub(super) type Report = Vec<Notice>;

/// Something that a pass has to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Something stood in the way; a reason of a fixed set.
    Trouble(&'static str),
    /// A warning to the author of the object that the pass is about.
    Warning {
        /// Reason of the Event.
        reason: &'static str,
        /// Action of the Event, for example `CreateClaim`.
        action: &'static str,
        /// Text for people.
        note: String,
    },
    /// The creation of a claim was tried.
    Created {
        /// Name of the claim.
        claim: String,
        /// Whether it exists now.
        success: bool,
        /// Whether it asks for admin access.
        admin_access: bool,
    },
    /// A claim was reserved for the Pod.
    Reserved {
        /// Name of the claim.
        claim: String,
    },
    /// A step at the end of a claim was taken.
    Step(ClaimStep),
    /// The claim has been idle since this time.
    Idle {
        /// Since when.
        since: Timestamp,
    },
    /// The claim is held for a consumer that vanished.
    Held {
        /// The consumer.
        consumer: ConsumerReference,
        /// Known facts about the end of the consumer.
        vanished: Vanished,
        /// Until when.
        until: Timestamp,
    },
    /// A consumer was taken out that vanished while it may have been running.
    Vanished(ConsumerReference),
    /// A status write is about to name a claim for an entry of the consumer with this uid.
    Publishing {
        /// Uid of the consumer.
        uid: String,
        /// Name of the entry.
        entry: String,
        /// Name of the claim.
        claim: String,
    },
    /// The object with this uid is proven to be gone.
    Gone(String),
    /// Outcome of the creations, for the keys that wait for a quota.
    Quota(CreationOutcome),
}

/// Returns the outcome about a key after a refusal, and reports the trouble; `what` was refused.
pub(super) fn refused(what: &str, refusal: &Refusal, report: &mut Report) -> Outcome {
    report.push(Notice::Trouble(refusal.reason()));
    match refusal.retry() {
        Retry::Never => Outcome::Done,
        // The watch brings what changed; the backoff is for when it does not.
        Retry::Conflict | Retry::Backoff | Retry::Change => {
            Outcome::Failed(Failure::RefusedAbout(what.to_owned(), refusal.clone()))
        }
    }
}
