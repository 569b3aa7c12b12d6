//! The index in words, for people with a problem.

use dragoman_crds::wire::ConsumerReference;
use dragoman_machinery::watch::{Body, Store};

use super::evidence::ConsumerKind;
use super::index::Index;

impl Index {
    /// The state in words, for people; objects are named that do not decode or that
    /// an unknown consumer holds.
    pub fn dump(&self) -> String {
        fn kind<P>(name: &str, store: &Store<P>) -> Vec<String> {
            let head = format!(
                "{name}: {} objects, {} unreadable, at resourceVersion {}, {}",
                store.len(),
                store.unreadable(),
                store.reached(),
                if store.synced() { "complete" } else { "not complete" }
            );
            let unreadable = store.iter().filter_map(|(ns, name, record)| match &record.body {
                Body::Unreadable(why) => Some(format!("  unreadable {ns}/{name} uid {}: {why}", record.uid)),
                Body::Readable(_) => None,
            });
            std::iter::once(head).chain(unreadable).collect()
        }
        let mut lines = kind("pods", &self.pods.store);
        lines.extend(kind("resourceclaims", &self.claims));
        for (ns, name, record) in self.claims.iter() {
            let reserved = record.readable().map(|r| &r.facts.reserved);
            for consumer in
                reserved.into_iter().flatten().filter(|c| ConsumerKind::of(c) == ConsumerKind::Foreign)
            {
                let ConsumerReference { api_group, resource, name: consumer, .. } = consumer;
                lines.push(format!("  {ns}/{name} held by {resource}.{api_group} {consumer}"));
            }
        }
        lines.extend(kind("resourceclaimtemplates", &self.templates));
        lines.extend(kind("podgroups", &self.groups.store));
        lines.push(format!("podgroups served: {:?}", self.groups_served));
        lines.push(String::new());
        lines.join("\n")
    }
}
