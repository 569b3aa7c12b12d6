//! `ResourceClaimTemplates`.

use std::sync::Arc;

use dragoman_crds::wire;
use dragoman_machinery::controller::{Keeps, Left, Place};
use dragoman_machinery::watch::{Record, Store};

use super::super::facts::TemplateFacts;
use super::super::key::{Key, Subject};
use super::Index;

impl Keeps<wire::ResourceClaimTemplate> for Index {
    type Projection = Arc<TemplateFacts>;

    fn store_mut(&mut self) -> &mut Store<Arc<TemplateFacts>> {
        &mut self.templates
    }

    fn tick(&mut self) -> u64 {
        self.next_tick()
    }

    fn project(&mut self, template: &wire::ResourceClaimTemplate) -> Arc<TemplateFacts> {
        Arc::new(template.into())
    }

    fn changed(
        &mut self,
        place: &Place,
        _old: Option<&Arc<TemplateFacts>>,
        _new: Option<&Arc<TemplateFacts>>,
    ) -> Vec<Key> {
        let Place { namespace, name, .. } = place;
        let key = |subject| move |user: &Arc<str>| Key::new(subject, Arc::clone(namespace), Arc::clone(user));
        let pods = self.pods_of_template.of(namespace, name).map(key(Subject::Pod));
        let groups = self.groups_of_template.of(namespace, name).map(key(Subject::PodGroup));
        groups.chain(pods).collect()
    }

    /// Claims that were made from a template live on without it.
    fn removed(
        &mut self,
        _namespace: &Arc<str>,
        _name: &Arc<str>,
        _last: &Record<Arc<TemplateFacts>>,
        _how: Left,
    ) -> Vec<Key> {
        Vec::new()
    }
}
