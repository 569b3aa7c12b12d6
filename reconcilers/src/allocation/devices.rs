//! Everything that says something of devices, on its way into the index.

use std::sync::Arc;

use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_machinery::controller::{Keeps, Left, ObjectKey, Place};
use dragoman_machinery::kind::{DEVICE_FOOTPRINT, Watchable as _};
use dragoman_machinery::watch::{Record, Store};
use dragoman_objects::{Device, DeviceClass, DeviceTaintRule, ResourceSlice, TaintRule};

use super::index::{Allocation, SliceNode};
use super::undecidable::{of_class, of_rule, of_slice};

/// Whether another object has the name of one that is gone, and can be read: it is in the index already.
pub(super) fn is_readable<P>(store: &Store<P>, name: &str) -> bool {
    store.get("", name).is_some_and(|record| record.readable().is_some())
}

impl Keeps<ResourceSlice> for Allocation {
    type Projection = SliceNode;

    fn store_mut(&mut self) -> &mut Store<SliceNode> {
        &mut self.slices
    }

    fn project(&mut self, slice: &ResourceSlice) -> Option<SliceNode> {
        let mut read = slice.slice();
        // The ledger has them.
        read.devices.iter_mut().for_each(Device::forget_costs);
        let node = read.node_name.clone();
        let devices = [(read.driver.clone(), read.devices.len().try_into().unwrap_or_default())].into();
        self.undecidable.put(ResourceSlice::NEWEST, &slice.metadata, of_slice(&read));
        self.contested.put(&read, slice.metadata.creation_timestamp.as_deref().unwrap_or_default());
        self.snapshot = self.snapshot.with_slice(read);
        self.accounts.put_slice(slice.into());
        Some(SliceNode(node, devices))
    }

    fn changed(&mut self, slice: &Place, old: Option<&SliceNode>, new: Option<&SliceNode>) -> Vec<ObjectKey> {
        if new.is_none() && !is_readable(&self.slices, &slice.name) {
            self.snapshot = self.snapshot.without_slice(&slice.name);
            self.contested.remove(&slice.name);
            self.undecidable.remove(ResourceSlice::NEWEST, &slice.name);
            self.accounts.remove_slice(&slice.name);
        }
        let mut keys = self.wake();
        for (slice, sign) in old.map(|old| (old, -1)).into_iter().chain(new.map(|new| (new, 1))) {
            if let SliceNode(Some(node), devices) = slice {
                self.published.add(node, devices, sign);
            }
        }
        for SliceNode(node, _) in old.into_iter().chain(new) {
            keys.extend(self.changed_at(node.as_deref()));
        }
        keys
    }

    fn listed(&mut self) -> Vec<ObjectKey> {
        self.serves(ResourceSlice::NEWEST, true)
    }

    fn unserved(&mut self) -> Vec<ObjectKey> {
        self.serves(ResourceSlice::NEWEST, false)
    }
}

impl Keeps<DeviceClass> for Allocation {
    type Projection = ();

    fn store_mut(&mut self) -> &mut Store<()> {
        &mut self.classes
    }

    fn project(&mut self, class: &DeviceClass) -> Option<()> {
        let read = class.class();
        self.undecidable.put(DeviceClass::NEWEST, &class.metadata, of_class(&read));
        self.snapshot = self.snapshot.with_class(read);
        Some(())
    }

    fn changed(&mut self, class: &Place, _old: Option<&()>, new: Option<&()>) -> Vec<ObjectKey> {
        if new.is_none() && !is_readable(&self.classes, &class.name) {
            self.snapshot = self.snapshot.without_class(&class.name);
            self.undecidable.remove(DeviceClass::NEWEST, &class.name);
        }
        self.changed_everywhere()
    }

    fn listed(&mut self) -> Vec<ObjectKey> {
        self.serves(DeviceClass::NEWEST, true)
    }

    fn unserved(&mut self) -> Vec<ObjectKey> {
        self.serves(DeviceClass::NEWEST, false)
    }
}

impl Keeps<DeviceTaintRule> for Allocation {
    type Projection = ();

    fn store_mut(&mut self) -> &mut Store<()> {
        &mut self.rules
    }

    fn project(&mut self, rule: &DeviceTaintRule) -> Option<()> {
        let read = rule.rule();
        self.undecidable.put(DeviceTaintRule::NEWEST, &rule.metadata, of_rule(&read));
        self.snapshot = self.snapshot.with_taint_rule(read);
        Some(())
    }

    fn changed(&mut self, rule: &Place, _old: Option<&()>, new: Option<&()>) -> Vec<ObjectKey> {
        // One that does not decode is there all the same, and may taint any device.
        if new.is_none() {
            let unreadable = TaintRule::unreadable(Arc::clone(&rule.name));
            self.snapshot = self.snapshot.with_taint_rule(unreadable);
        }
        self.changed_everywhere()
    }

    fn removed(
        &mut self,
        _namespace: &Arc<str>,
        name: &Arc<str>,
        _last: &Record<()>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        // Another rule may have its name already, and taint devices although it does not decode.
        if self.rules.get("", name).is_none() {
            self.snapshot = self.snapshot.without_taint_rule(name);
            self.undecidable.remove(DeviceTaintRule::NEWEST, name);
        }
        self.changed_everywhere()
    }

    fn listed(&mut self) -> Vec<ObjectKey> {
        self.serves(DeviceTaintRule::NEWEST, true)
    }

    fn unserved(&mut self) -> Vec<ObjectKey> {
        self.serves(DeviceTaintRule::NEWEST, false)
    }

    fn forbidden(&mut self) -> Vec<ObjectKey> {
        self.may_not_see(DeviceTaintRule::NEWEST)
    }
}

impl Keeps<DeviceFootprint> for Allocation {
    type Projection = ();

    fn store_mut(&mut self) -> &mut Store<()> {
        &mut self.footprints
    }

    /// One that is refused is said by the ledger of the operator.
    fn project(&mut self, of: &DeviceFootprint) -> Option<()> {
        self.accounts.put_footprint(of);
        Some(())
    }

    fn changed(&mut self, of: &Place, _old: Option<&()>, new: Option<&()>) -> Vec<ObjectKey> {
        if new.is_none() && !is_readable(&self.footprints, &of.name) {
            self.accounts.lost_footprint(&of.name, self.footprints.get("", &of.name));
        }
        // It may be about devices that nothing uses yet.
        self.accounts.take_changed();
        self.changed_everywhere()
    }

    fn listed(&mut self) -> Vec<ObjectKey> {
        self.serves(DEVICE_FOOTPRINT, true)
    }

    fn unserved(&mut self) -> Vec<ObjectKey> {
        self.serves(DEVICE_FOOTPRINT, false)
    }
}
