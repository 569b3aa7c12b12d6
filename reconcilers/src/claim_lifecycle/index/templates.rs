//! `ResourceClaimTemplates`.

use std::sync::Arc;

use dragoman_machinery::controller::{Keeps, Left, Place};
use dragoman_machinery::watch::{Record, Store};
use dragoman_objects as objects;

use super::super::facts::TemplateRecord;
use super::super::key::{Key, Subject};
use super::super::state::State;

/// The bytes of payload that are kept of all templates together. The templates beyond that cost a read
/// for each claim.
const PAYLOADS: usize = 16 << 20;

impl Keeps<objects::ResourceClaimTemplate> for State {
    type Projection = TemplateRecord;

    fn store_mut(&mut self) -> &mut Store<TemplateRecord> {
        &mut self.index.templates
    }

    fn tick(&mut self) -> u64 {
        self.evidence.next_tick()
    }

    fn project(&mut self, template: &objects::ResourceClaimTemplate) -> Option<TemplateRecord> {
        Some(TemplateRecord::of(template, PAYLOADS.saturating_sub(self.index.payloads)))
    }

    fn changed(
        &mut self,
        place: &Place,
        old: Option<&TemplateRecord>,
        new: Option<&TemplateRecord>,
    ) -> Vec<Key> {
        let Place { namespace, name, .. } = place;
        self.index.payloads -= old.map_or(0, TemplateRecord::bytes);
        self.index.payloads += new.map_or(0, TemplateRecord::bytes);
        // A change of labels and annotations of the template itself changes no claim.
        if old.zip(new).is_some_and(|(old, new)| old.fingerprint == new.fingerprint) {
            return Vec::new();
        }
        let key = |subject| move |user: &Arc<str>| Key::new(subject, Arc::clone(namespace), Arc::clone(user));
        let pods = self.index.pods_of_template.of(namespace, name).map(key(Subject::Pod));
        let groups = self.index.groups_of_template.of(namespace, name).map(key(Subject::PodGroup));
        groups.chain(pods).collect()
    }

    /// Claims that were made from a template live on without it.
    fn removed(
        &mut self,
        _namespace: &Arc<str>,
        _name: &Arc<str>,
        last: &Record<TemplateRecord>,
        _how: Left,
    ) -> Vec<Key> {
        self.index.payloads -= last.readable().map_or(0, TemplateRecord::bytes);
        Vec::new()
    }
}
