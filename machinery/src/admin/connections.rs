//! The bound on open connections.

use std::collections::VecDeque;

use tokio::task::AbortHandle;

/// Most connections that a listener has open.
pub(super) const MOST: usize = 64;

/// The open connections of a listener, oldest first.
///
/// A new connection is never refused: when there are too many the oldest is closed. Otherwise 64
/// idle connections from any Pod would shut the kubelet's probes out, and the kubelet would end a
/// healthy process.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: VecDeque<AbortHandle>,
}

impl Connections {
    /// Makes room for a connection. Returns whether another one had to be closed for it.
    pub(super) fn make_room(&mut self) -> bool {
        if self.open.len() < MOST {
            return false;
        }
        self.open.retain(|connection| !connection.is_finished());
        let crowded = self.open.len() >= MOST;
        if crowded && let Some(oldest) = self.open.pop_front() {
            oldest.abort();
        }
        crowded
    }

    /// Takes in a connection for which there is room.
    pub(super) fn add(&mut self, connection: AbortHandle) {
        self.open.push_back(connection);
    }
}
