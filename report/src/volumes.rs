//! PersistentVolumes, the claims for them, and their classes, as files have them.

use std::collections::BTreeMap;

use dragoman_cluster::placement::{
    SchedulingConstraints, Storage, StorageClassFacts, VolumeClaimFacts, VolumeFacts, VolumeReach,
};
use dragoman_objects::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};

/// Volumes and their claims.
#[derive(Debug, Default)]
pub(crate) struct StorageOfFiles {
    /// By namespace and name.
    claims: BTreeMap<String, BTreeMap<String, VolumeClaimFacts>>,
    volumes: BTreeMap<String, VolumeFacts>,
    classes: BTreeMap<String, StorageClassFacts>,
}

impl StorageOfFiles {
    pub(crate) fn put_claim(&mut self, namespace: &str, name: &str, claim: &PersistentVolumeClaim) {
        self.claims.entry(namespace.to_owned()).or_default().insert(name.to_owned(), claim.into());
    }

    pub(crate) fn put_volume(&mut self, name: &str, volume: &PersistentVolume) {
        self.volumes.insert(name.to_owned(), volume.into());
    }

    pub(crate) fn put_class(&mut self, name: &str, class: &StorageClass) {
        self.classes.insert(name.to_owned(), class.into());
    }

    /// Returns the nodes that can use the volumes of a Pod. Files without a claim of its namespace say nothing.
    pub(crate) fn reach(&self, pod: &Pod, constraints: &SchedulingConstraints) -> Option<VolumeReach> {
        let meta = &pod.metadata;
        self.claims.get(&*meta.namespace)?;
        constraints.reach(&meta.namespace, &meta.uid, self)
    }
}

impl Storage for StorageOfFiles {
    fn claim(&self, namespace: &str, name: &str) -> Option<&VolumeClaimFacts> {
        self.claims.get(namespace)?.get(name)
    }

    fn volume(&self, name: &str) -> Option<&VolumeFacts> {
        self.volumes.get(name)
    }

    fn class(&self, name: &str) -> Option<&StorageClassFacts> {
        self.classes.get(name)
    }

    fn volumes(&self) -> Box<dyn Iterator<Item = &VolumeFacts> + '_> {
        Box::new(self.volumes.values())
    }
}
