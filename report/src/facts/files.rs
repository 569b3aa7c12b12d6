//! Objects from files: of two versions the newer one counts, what a server would have added is added, and what no server would have
//! taken is said.

use std::path::Path;

use anyhow::{Context as _, ensure};
use dragoman_allocator::input::Cluster;
use dragoman_objects::{Name, Pod, ResourceClaim};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Facts, KINDS};
use crate::manifests;

/// Fields that people misspell, as the API spells them: those that lead to claims and devices.
const FIELDS: [&str; 27] = [
    "apiVersion",
    "metadata",
    "spec",
    "status",
    "nodeName",
    "schedulingGates",
    "containers",
    "resourceClaims",
    "resourceClaimName",
    "resourceClaimTemplateName",
    "devices",
    "requests",
    "exactly",
    "firstAvailable",
    "deviceClassName",
    "allocationMode",
    "count",
    "selectors",
    "constraints",
    "matchAttribute",
    "tolerations",
    "adminAccess",
    "driver",
    "pool",
    "sharedCounters",
    "allocation",
    "reservedFor",
];
/// Fields below which names are free, or those of another API.
const FREE: [&str; 14] = [
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "attributes",
    "capacity",
    "counters",
    "consumesCounters",
    "parameters",
    "data",
    "managedFields",
    "volumes",
    "env",
    "conditions",
];
/// Levels of an object in which its fields are compared. Below are the devices of a slice, which drivers write.
const DEPTH: usize = 9;

impl Facts {
    /// Takes in the objects of a file, as `kubectl get` prints them with `-o json` or `-o yaml`: one, several, or lists.
    ///
    /// # Errors
    /// A part of the text is no object.
    pub fn take_file(&mut self, file: &Path, text: &str) -> anyhow::Result<()> {
        self.from_files = true;
        manifests::take(file, text, &mut |found| {
            let kind = found.head.kind.as_deref().unwrap_or_default();
            ensure!(
                !["", "Table", "Status"].contains(&kind),
                "{}: it is no object of a cluster (print dumps with -o yaml or -o json)",
                found.place
            );
            let is_read = KINDS.contains(&kind) && found.head.is_of_its_group();
            let name = found.head.metadata.as_ref().and_then(|metadata| metadata.name.as_deref());
            ensure!(
                !is_read || kind == "Event" || !name.unwrap_or_default().is_empty(),
                "{}: a {kind} without metadata.name",
                found.place
            );
            if is_read && self.is_newest(&found.head) {
                let object: &RawValue = serde_json::from_slice(&found.text).context(found.place.clone())?;
                self.note_misspelt(&found.place, kind, name.unwrap_or_default(), &found.text);
                self.take(kind, object);
            } else if !is_read {
                *self.others.entry(kind.to_owned()).or_default() += 1;
            }
            Ok(())
        })
    }

    /// Whether no newer version of an object of the files has been read; an older one is dropped. Of two without versions, the
    /// later one counts, as for `kubectl apply`.
    fn is_newest(&mut self, head: &manifests::PartialObjectMetadata) -> bool {
        let metadata = head.metadata.clone().unwrap_or_default();
        let kind = head.kind.as_deref().unwrap_or_default();
        // Events have no names that a person repeats.
        if kind == "Event" {
            return true;
        }
        let name = metadata.name.unwrap_or_default();
        let namespace = metadata.namespace.unwrap_or_default();
        let version = metadata.resource_version.and_then(|version| version.parse::<u128>().ok());
        let key = (kind.to_owned(), (namespace.to_string(), name.to_string()));
        match self.versions.insert(key.clone(), version) {
            Some(before) if before > version => {
                self.versions.insert(key, before);
                false
            }
            Some(_) => {
                self.unreadable.retain(|(of, known), _| *of != kind || *known != key.1);
                match kind {
                    "Pod" => {
                        self.pods.remove(&key.1);
                        self.placements.remove(&key.1);
                    }
                    "ResourceClaim" => drop(self.claims.remove(&key.1)),
                    "ResourceClaimTemplate" => drop(self.templates.remove(&key.1)),
                    "Node" => {
                        self.nodes.remove(&key.1.1);
                        self.sites.remove(&key.1.1);
                    }
                    _ => {}
                }
                let is_it = |of: &str| *of == *name;
                let Cluster { nodes, slices, classes, claims, taint_rules } = &mut self.cluster;
                match kind {
                    "Node" => nodes.retain(|of| !is_it(&of.name)),
                    "ResourceSlice" => slices.retain(|of| !is_it(&of.name)),
                    "DeviceClass" => classes.retain(|of| !is_it(&of.name)),
                    "DeviceTaintRule" => taint_rules.retain(|of| !is_it(&of.name)),
                    "ResourceClaim" => claims.retain(|of| !is_it(&of.name) || of.namespace != namespace),
                    _ => {}
                }
                true
            }
            None => true,
        }
    }

    /// Checks that the files have an object that an answer can be made of.
    ///
    /// # Errors
    /// They have none.
    pub fn ensure_any(&self) -> anyhow::Result<()> {
        let others = self.others.iter().map(|(kind, count)| format!("{count} of kind {kind}"));
        let others = others.collect::<Vec<_>>().join(", ");
        ensure!(
            !self.versions.is_empty() || !self.events.is_empty() || self.others.is_empty(),
            "the files have no object that an answer is made of ({}): they have {others}",
            KINDS.join(", ")
        );
        Ok(())
    }

    /// Notes a field that the API server would not have taken.
    fn note_misspelt(&mut self, place: &str, kind: &str, name: &str, text: &[u8]) {
        let object: Value = serde_json::from_slice(text).unwrap_or_default();
        if let Some((path, right)) = misspelt(&object, "", DEPTH) {
            self.notes.push(format!("{place}: {kind} {name}: `{path}` is no field, the API has `{right}`"));
        }
    }
}

/// Gives a Pod that has no uid one by its name. Without uids one Pod would be every consumer.
pub(super) fn name_pod(pod: &mut Pod) {
    if pod.metadata.uid.is_empty() {
        pod.metadata.uid = uid_of("Pod", &pod.metadata.namespace, &pod.metadata.name);
    }
}

/// The same for a claim, its consumers and its owner.
pub(super) fn name_claim(claim: &mut ResourceClaim) {
    let namespace = claim.metadata.namespace.clone();
    if claim.metadata.uid.is_empty() {
        claim.metadata.uid = uid_of("ResourceClaim", &namespace, &claim.metadata.name);
    }
    for consumer in &mut claim.status.reserved_for {
        if consumer.uid.is_empty() && consumer.is_pod() {
            consumer.uid = uid_of("Pod", &namespace, &consumer.name);
        }
    }
    if let Some(owner) = claim.metadata.controller.as_mut().filter(|owner| owner.uid.is_empty()) {
        owner.uid = uid_of(&owner.kind, &namespace, &owner.name);
    }
}

fn uid_of(kind: &str, namespace: &str, name: &str) -> Name {
    format!("{kind} {namespace}/{name}").into()
}

/// The path of a field that is spelled in other letters than the API has it, and the right name.
fn misspelt(value: &Value, path: &str, depth: usize) -> Option<(String, &'static str)> {
    if depth == 0 {
        return None;
    }
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            if FREE.contains(&name.as_str()) {
                return None;
            }
            let right = FIELDS.into_iter().find(|field| *field != name && field.eq_ignore_ascii_case(name));
            let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            match right {
                Some(right) => Some((place, right)),
                None => misspelt(value, &place, depth - 1),
            }
        }),
        Value::Array(all) => {
            let mut all = all.iter().enumerate();
            all.find_map(|(number, value)| misspelt(value, &format!("{path}[{number}]"), depth - 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taken(object: &Value) -> Facts {
        let mut facts = Facts::default();
        facts.take_file(Path::new("f"), &object.to_string()).expect("an object");
        facts
    }

    #[test]
    fn a_field_that_is_spelled_in_other_letters_is_said() {
        let notes = |object: &Value| taken(object).notes;
        let pod = json!({"apiversion": "v1", "kind": "Pod", "metadata": {"name": "aligned"}, "spec": {}});
        assert_eq!(notes(&pod), ["f:1: Pod aligned: `apiversion` is no field, the API has `apiVersion`"]);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"Spec": "x"}},
            "spec": {"containers": [{"resources": {"Requests": {}}}]}});
        assert_eq!(
            notes(&pod),
            ["f:1: Pod p: `spec.containers[0].resources.Requests` is no field, the API has `requests`"]
        );
        let right = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"Count": "1"}},
            "spec": {"containers": [{"resources": {"requests": {}}}]}});
        assert!(notes(&right).is_empty());
    }

    #[test]
    fn a_claim_without_uids_is_reserved_for_the_pods_that_it_names() {
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": "c"},
            "status": {"reservedFor": [{"resource": "pods", "name": "a"}]}});
        let mut facts = taken(&claim);
        for name in ["a", "b"] {
            let pod =
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": name}});
            facts.take_file(Path::new("f"), &pod.to_string()).expect("a Pod");
        }
        let key = |name: &str| ("ns".to_owned(), name.to_owned());
        let consumer = &facts.claims[&key("c")].status.reserved_for[0];
        let is_for = |name: &str| consumer.stands_for(&facts.pods[&key(name)].metadata.uid, None);
        assert!(is_for("a") && !is_for("b"));
    }
}
