//! One pass of a reconciliation: a pure step machine, and the one executor that carries it out.

use std::pin::pin;

use futures::StreamExt as _;

use crate::api::Live;
use crate::kind::Kind;
use crate::refusal::Refusal;
use crate::trace;
use crate::write::{Write, Written};

use super::{Controller, Failure, Index, Outcome};

/// The next step of a pass.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum Next<P> {
    /// There is nothing more to do in this pass.
    Rest(Outcome),
    /// Read these objects live, a few at once, hand each answer to [`Pass::read`] in this order, then
    /// ask for the next step. After an answer that is transient or throttled no more is asked.
    Read(Vec<LiveRead>),
    /// Send this write, hand the answer to [`Pass::sent`], then ask for the next step.
    Send {
        /// The write.
        write: Box<Write>,
        /// Purpose of the write, for [`Pass::sent`].
        purpose: P,
    },
}

/// The reads of a pass that are in flight at once: a claim may have 256 consumers to be confirmed.
const READS_AT_ONCE: usize = 8;

/// An object to be read from the API server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveRead {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The right that the read takes.
    pub by: ReadBy,
}

/// Way in which an object is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadBy {
    /// By its name: the right to get it.
    Get,
    /// By a list of that one object: the right to list, which a controller that watches the kind has anyway.
    List,
}

/// Answer of the API server to a [`LiveRead`]: the object as JSON text, or the statement that no object
/// of that kind and name exists.
pub type Answer = Result<Live<Vec<u8>>, Refusal>;

/// One pass about one key. It makes every decision and never waits: which names are given, in which
/// order things happen, what an answer means.
pub trait Pass<I: Index>: Send {
    /// Purpose of a write.
    type Purpose: Send;
    /// The most steps that a pass of this size can have; more is a bug.
    fn most_steps(&self) -> usize;
    /// Looks at the index, before each step. A pass that was planned on what its caller has seen looks no more.
    fn observe(&mut self, _index: &I) {}
    /// Decides the next step.
    fn next(&mut self) -> Next<Self::Purpose>;
    /// Takes in the answer to a read; a pass that asks nothing gets none.
    fn read(&mut self, _read: &LiveRead, _answer: Answer) {}
    /// Takes in the answer to a write.
    fn sent(&mut self, purpose: Self::Purpose, outcome: Result<Written, Refusal>);
    /// A resourceVersion of a kind, learnt by a read, that the index has to reach before the key is
    /// decided on again. Given out once.
    fn expected(&mut self) -> Option<(Kind, String)> {
        None
    }
}

impl<I: Index> Controller<I> {
    /// Carries a pass out. `tell` takes from the pass what it has to say, after each step.
    pub async fn carry_out<P: Pass<I>>(
        &self,
        key: &I::Key,
        pass: &mut P,
        mut tell: impl FnMut(&mut P) + Send,
    ) -> Outcome {
        let mut steps = 0;
        loop {
            self.read(|index| pass.observe(index));
            // Asked for again at each step: a pass learns its size from the index.
            if steps > pass.most_steps() {
                return Outcome::Failed(Failure::Other("the plan does not come to an end".to_owned()));
            }
            steps += 1;
            let next = pass.next();
            tell(pass);
            match next {
                Next::Rest(then) => return then,
                Next::Read(reads) => {
                    // Each is sent in its turn; the answers are taken in in the same order.
                    let answers = reads.into_iter().map(async |read| {
                        let answer = self.read_live(&read).await;
                        (read, answer)
                    });
                    let mut answers = pin!(futures::stream::iter(answers).buffered(READS_AT_ONCE));
                    while let Some((read, answer)) = answers.next().await {
                        // An API server that does not answer is not asked hundreds of times more.
                        let silent = matches!(answer, Err(Refusal::Transient(_) | Refusal::Throttled));
                        pass.read(&read, answer);
                        if silent {
                            break;
                        }
                    }
                }
                Next::Send { write, purpose } => {
                    let outcome = self.send(key, &write).await;
                    pass.sent(purpose, outcome);
                }
            }
            if let Some((kind, version)) = pass.expected() {
                self.expect(key, kind, &version);
            }
            tell(pass);
        }
    }

    /// Reads an object from the API server. So many reads are under way at once as those of passes.
    ///
    /// # Errors
    /// The API server refuses the read, or does not answer.
    pub async fn read_live(&self, read: &LiveRead) -> Answer {
        let LiveRead { kind, namespace, name, by } = read;
        self.context.machinery.live_get(kind.kind);
        trace::requested();
        // The semaphore is never closed.
        let _permit = self.reads.acquire().await;
        let api = &self.context.api;
        let answer = match by {
            ReadBy::Get => api.read(*kind, namespace, name).await,
            ReadBy::List => api.read_listed(*kind, namespace, name).await,
        };
        if matches!(answer, Err(Refusal::Unserved(_))) {
            self.context.discovery.invalidate();
        }
        answer
    }
}
