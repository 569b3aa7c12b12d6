//! Nodes, as far as they end what runs there. Watched only where claims are held for Pods that vanished.

use std::sync::Arc;

use dragoman_machinery::controller::{Keeps, Left, Place};
use dragoman_machinery::watch::{Record, Store};
use dragoman_objects as objects;

use super::super::key::Key;
use super::super::state::State;

impl Keeps<objects::Node> for State {
    /// Whether the node is out of service.
    type Projection = bool;

    fn store_mut(&mut self) -> &mut Store<bool> {
        &mut self.index.nodes
    }

    fn project(&mut self, node: &objects::Node) -> Option<bool> {
        Some(node.is_out_of_service())
    }

    fn changed(&mut self, place: &Place, old: Option<&bool>, new: Option<&bool>) -> Vec<Key> {
        if old != new && new == Some(&true) { self.held.on(&place.name) } else { Vec::new() }
    }

    fn removed(
        &mut self,
        _namespace: &Arc<str>,
        name: &Arc<str>,
        _last: &Record<bool>,
        _how: Left,
    ) -> Vec<Key> {
        self.held.on(name)
    }
}
