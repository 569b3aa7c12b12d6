//! Failures of reconciliations.

use crate::refusal::Refusal;

/// The reason why a reconciliation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A request was refused.
    #[error("{0}")]
    Refused(Refusal),
    /// A request about another object than that of the key was refused; the text says what was tried.
    #[error("{0}: {1}")]
    RefusedAbout(String, Refusal),
    /// Something else is wrong; the text says what.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// A short fixed word, for the log.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused(refusal) | Self::RefusedAbout(_, refusal) => refusal.reason(),
            Self::Other(_) => "Other",
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
