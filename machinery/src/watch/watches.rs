//! One watch for each kind of the process, and all the sinks that it feeds.

use std::any::Any;

use dragoman_objects::Meta;
use tokio::time::{Duration, Instant, sleep};

use super::{
    Failure, Item, Journal, REFUSED, Selectors, Sink, WatchClient, Watched, drive, drive_while_served,
};
use crate::backoff::Backoff;
use crate::discovery::Discovery;
use crate::kind::{Kind, Watchable};
use crate::refusal::Refusal;
use crate::supervise::Task;

/// Several sinks as one: an object is decoded once for all of them. The indexes of a whole are one sink; there are more where
/// the controllers of a process have several wholes.
struct Fanout<T> {
    sinks: Vec<Box<dyn Sink<Object = T>>>,
    names: String,
}

impl<T: Watchable> Sink for Fanout<T> {
    type Object = T;

    fn name(&self) -> String {
        self.names.clone()
    }

    fn serving(&mut self, kind: Kind) {
        self.sinks.iter_mut().for_each(|sink| sink.serving(kind));
    }

    fn began(&mut self) {
        self.sinks.iter_mut().for_each(|sink| sink.began());
    }

    fn applied(&mut self, item: &Item<T>) {
        self.sinks.iter_mut().for_each(|sink| sink.applied(item));
    }

    fn deleted(&mut self, meta: &Meta) {
        self.sinks.iter_mut().for_each(|sink| sink.deleted(meta));
    }

    fn completed(&mut self, version: &str) {
        self.sinks.iter_mut().for_each(|sink| sink.completed(version));
    }

    fn advanced(&mut self, version: &str) {
        self.sinks.iter_mut().for_each(|sink| sink.advanced(version));
    }

    fn failed(&mut self, failure: &Failure) {
        self.sinks.iter_mut().for_each(|sink| sink.failed(failure));
    }

    fn forbidden(&mut self) {
        self.sinks.iter_mut().for_each(|sink| sink.forbidden());
    }
}

type Sinks<T> = Vec<Box<dyn Sink<Object = T>>>;

/// The watches of a process: one for each kind and selection, however many indexes it feeds.
#[derive(Default)]
pub struct Watches(Vec<Planned>);

/// A watch that is not open yet.
struct Planned {
    selectors: Selectors,
    /// [`Sinks`] of its type.
    sinks: Box<dyn Any + Send>,
    open: fn(Box<dyn Any + Send>, Selectors, Connection) -> Task,
}

/// Client, discovery and journal with which watches are opened. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    /// Without a read timeout: the watch driver has its own.
    pub client: WatchClient,
    /// Tells which versions are served.
    pub discovery: Discovery,
    /// Records the course of the watches.
    pub journal: Journal,
}

impl Watches {
    /// Feeds `sink` from the watch of `T` for what `selectors` select.
    pub fn feed<T: Watchable>(&mut self, selectors: Selectors, sink: impl Sink<Object = T>) {
        let sink: Box<dyn Sink<Object = T>> = Box::new(sink);
        let same = self.0.iter_mut().filter(|watch| watch.selectors == selectors);
        let mut same = same.filter_map(|watch| watch.sinks.downcast_mut::<Sinks<T>>());
        if let Some(sinks) = same.next() {
            sinks.push(sink);
            return;
        }
        self.0.push(Planned { selectors, sinks: Box::new(vec![sink]), open: open::<T> });
    }

    /// The task of each watch; none may end.
    pub fn open(self, connection: &Connection) -> Vec<Task> {
        let open = |watch: Planned| (watch.open)(watch.sinks, watch.selectors, connection.clone());
        self.0.into_iter().map(open).collect()
    }
}

fn open<T: Watchable>(sinks: Box<dyn Any + Send>, selectors: Selectors, connection: Connection) -> Task {
    // The type is that of the entry: `feed` put both there.
    let sinks = sinks.downcast::<Sinks<T>>().map_or_else(|_| Vec::new(), |sinks| *sinks);
    let names = sinks.iter().map(|sink| sink.name()).collect::<Vec<_>>().join(", ");
    let plural = T::KINDS.first().map_or("nothing", |kind| kind.plural);
    let task = follow_served(Fanout { sinks, names }, selectors, connection);
    Task::new(format!("watch of {plural}"), task)
}

/// The first pause before discovery is asked again whether a kind is served, and the longest.
const SOON_AGAIN: Duration = Duration::from_secs(15);
const SELDOM: Duration = Duration::from_mins(3);

/// Watches a kind in whichever version is served, for as long as one is.
async fn follow_served<T: Watchable>(mut sinks: Fanout<T>, selectors: Selectors, connection: Connection) {
    let Connection { client, discovery, journal } = connection;
    let source =
        |kind| Watched::<T>::new(client.clone(), kind, discovery.clone()).selecting(selectors.clone());
    if let [kind] = T::KINDS
        && T::NEEDED
    {
        // There is nothing to choose from, and nothing works without it: the list itself finds out whether it
        // is served.
        sinks.serving(*kind);
        return drive(kind.kind, source(*kind), sinks, journal).await;
    }
    // People wait for a definition that they have just applied.
    let seldom = if T::NEWEST.is_own() { SOON_AGAIN } else { SELDOM };
    let kind = T::NEWEST.kind;
    journal.expect(kind, selectors.query());
    let (backoff, mut doubled) = (Backoff::new(SOON_AGAIN, seldom), 0);
    // A kind that may not be read is asked for once each time: it does not count as one that was there and is cut off.
    let mut refused = REFUSED;
    loop {
        match discovery.first_served(T::KINDS).await {
            Ok(Some(kind)) => {
                doubled = 0;
                sinks.serving(kind);
                let began = Instant::now();
                let mut source = source(kind);
                let ended = drive_while_served(kind.kind, &mut source, &mut sinks, &journal, refused).await;
                if let Failure::Forbidden(_) = ended {
                    missing(&mut sinks, &ended, &journal, &selectors);
                    refused = if began.elapsed() > SELDOM { REFUSED } else { 1 };
                    sleep(SOON_AGAIN).await;
                } else {
                    refused = REFUSED;
                    // Discovery may lag behind: what is refused as unserved is not asked for at once.
                    sleep(Duration::from_secs(1)).await;
                }
            }
            Ok(None) => {
                missing(&mut sinks, &Failure::Unserved, &journal, &selectors);
                // A kind that was there a moment ago is likely to come back: an upgrade is under
                // way. One that never was may come one day.
                sleep(backoff.pause(doubled)).await;
                doubled += 1;
                discovery.invalidate();
            }
            Err(refusal @ (Refusal::Transient(_) | Refusal::Throttled)) => {
                tracing::warn!(kind, error = %refusal, "cannot ask which versions are served");
                sleep(Duration::from_secs(5)).await;
            }
            Err(refusal) => {
                // The lists find out: an account that may read objects may be refused discovery.
                tracing::warn!(kind, error = %refusal, "may not ask which versions are served");
                let began = Instant::now();
                let ended = try_each(source, &mut sinks, &journal, refused).await;
                if began.elapsed() > SELDOM {
                    // One was served until a moment ago.
                    doubled = 0;
                    continue;
                }
                missing(&mut sinks, &ended, &journal, &selectors);
                if let Failure::Forbidden(_) = ended {
                    refused = 1;
                }
                sleep(backoff.pause(doubled)).await;
                doubled += 1;
            }
        }
    }
}

/// Nothing is known of the objects of a kind, which is not served or may not be read, and the rest goes on.
fn missing<T: Watchable>(sinks: &mut Fanout<T>, why: &Failure, journal: &Journal, selectors: &Selectors) {
    sinks.failed(why);
    if let Failure::Forbidden(_) = why {
        sinks.forbidden();
    }
    journal.unserved(T::NEWEST.kind, selectors.query());
}

/// Watches a kind in each of its versions for as long as it is served; returns why the last watch has ended: whether none is served, or
/// it may not be read, in whichever version.
async fn try_each<T: Watchable>(
    source: impl Fn(Kind) -> Watched<T>,
    sinks: &mut Fanout<T>,
    journal: &Journal,
    refused: u32,
) -> Failure {
    for kind in T::KINDS {
        sinks.serving(*kind);
        let ended = drive_while_served(kind.kind, &mut source(*kind), sinks, journal, refused).await;
        if let Failure::Forbidden(_) = ended {
            return ended;
        }
    }
    Failure::Unserved
}

#[cfg(test)]
mod tests;
