//! PersistentVolumes, the claims for them, and their classes, on their way into the index.

use dragoman_machinery::controller::{Keeps, ObjectKey, Place};
use dragoman_machinery::kind::Watchable as _;
use dragoman_machinery::watch::{Record, Store};
use dragoman_objects::{PersistentVolume, PersistentVolumeClaim, StorageClass};

use super::index::Allocation;
use dragoman_cluster::placement::{self, StorageClassFacts, VolumeClaimFacts, VolumeFacts};

/// The volumes of the cluster.
#[derive(Debug, Default)]
pub(super) struct Storage {
    pub(super) claims: Store<VolumeClaimFacts>,
    pub(super) volumes: Store<VolumeFacts>,
    pub(super) classes: Store<StorageClassFacts>,
}

impl placement::Storage for Storage {
    fn claim(&self, namespace: &str, name: &str) -> Option<&VolumeClaimFacts> {
        self.claims.get(namespace, name).and_then(Record::readable)
    }

    fn volume(&self, name: &str) -> Option<&VolumeFacts> {
        self.volumes.get("", name).and_then(Record::readable)
    }

    fn class(&self, name: &str) -> Option<&StorageClassFacts> {
        self.classes.get("", name).and_then(Record::readable)
    }

    fn volumes(&self) -> Box<dyn Iterator<Item = &VolumeFacts> + '_> {
        Box::new(self.volumes.iter().filter_map(|(_, _, record)| record.readable()))
    }
}

/// Keeps the projection of a kind. A change is about Pods of the namespace that `$concerned` returns, or of any.
macro_rules! keeps {
    ($kind:ty, $facts:ty, $store:ident, $concerned:expr) => {
        impl Keeps<$kind> for Allocation {
            type Projection = $facts;

            fn store_mut(&mut self) -> &mut Store<$facts> {
                &mut self.storage.$store
            }

            fn project(&mut self, object: &$kind) -> Option<$facts> {
                Some(object.into())
            }

            fn changed(&mut self, of: &Place, old: Option<&$facts>, new: Option<&$facts>) -> Vec<ObjectKey> {
                let concerned: fn(&Place) -> Option<&str> = $concerned;
                if old == new { Vec::new() } else { self.shapes.heads_in(concerned(of)) }
            }

            fn listed(&mut self) -> Vec<ObjectKey> {
                self.serves(<$kind>::NEWEST, true)
            }

            fn unserved(&mut self) -> Vec<ObjectKey> {
                self.serves(<$kind>::NEWEST, false)
            }
        }
    };
}

keeps!(PersistentVolumeClaim, VolumeClaimFacts, claims, |of| Some(&of.namespace));
keeps!(PersistentVolume, VolumeFacts, volumes, |_| None);
keeps!(StorageClass, StorageClassFacts, classes, |_| None);
