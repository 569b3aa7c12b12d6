//! Drivers with an owner (docs/protocol.md, section 5): whose devices kube-scheduler does not give, and whose this
//! allocator does not.

use dragoman_crds::driver_owner::DriverOwner;
use dragoman_objects::Name;
use std::sync::Arc;

use dragoman_machinery::controller::{Keeps, Left, ObjectKey, Place};
use dragoman_machinery::kind::DRIVER_OWNER;
use dragoman_machinery::watch::{Record, Store};

use super::decide::Decision;
use super::index::Allocation;

/// Owners of drivers, as DriverOwners name them.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// The users that may allocate the devices of a driver, by its name. One that cannot be read names none.
    pub(super) of: Store<Arc<[Name]>>,
    /// The user that this allocator is for the API server, `None` until it was asked. Empty where the API server does not say:
    /// every driver counts as ours then, and admission alone judges.
    account: Option<Name>,
}

impl Owners {
    /// Whether devices of a driver are for other allocators.
    fn is_withheld(&self, driver: &str) -> bool {
        let Some(record) = self.of.get("", driver) else { return false };
        let Some(account) = self.account.as_ref().filter(|account| !account.is_empty()) else { return false };
        !record.readable().is_some_and(|users| users.contains(account))
    }

    /// Whether the API server was asked who this allocator is.
    pub(super) fn knows_its_user(&self) -> bool {
        self.account.is_some()
    }
}

impl Allocation {
    /// Takes in who this allocator is. Returns the Pods to be woken.
    pub(super) fn is_user(&mut self, account: Name) -> Vec<ObjectKey> {
        self.owners.account = Some(account);
        let drivers: Vec<Name> = self.owners.of.iter().map(|(_, driver, _)| Name::from(&**driver)).collect();
        drivers.iter().for_each(|driver| self.withhold(driver));
        self.changed_everywhere()
    }

    fn withhold(&mut self, driver: &str) {
        self.snapshot = self.snapshot.withholding(driver, self.owners.is_withheld(driver));
    }

    /// Returns the message about the devices that every search leaves out, if there are any.
    pub(super) fn left_out(&self) -> Option<String> {
        let drivers: Vec<&str> = self.snapshot.withheld().into_iter().map(|driver| &**driver).collect();
        let account = self.owners.account.as_deref().unwrap_or_default();
        (!drivers.is_empty()).then(|| {
            let drivers = drivers.join(", ");
            format!(
                "devices of {drivers} are left out, because {account} is no owner of theirs (DriverOwner)"
            )
        })
    }

    /// Whether kube-scheduler may allocate none of these devices.
    pub(super) fn are_owned(&self, decision: &Decision) -> bool {
        let mut devices = decision.allocations.iter().flat_map(|(_, devices)| &devices.devices.results);
        devices.all(|result| self.owners.of.get("", &result.driver).is_some())
    }
}

impl Keeps<DriverOwner> for Allocation {
    type Projection = Arc<[Name]>;

    fn store_mut(&mut self) -> &mut Store<Arc<[Name]>> {
        &mut self.owners.of
    }

    fn project(&mut self, owner: &DriverOwner) -> Option<Arc<[Name]>> {
        let user = |of: &dragoman_crds::claim_gate::ServiceAccount| {
            Name::from(format!("system:serviceaccount:{}:{}", of.namespace, of.name))
        };
        Some(owner.spec.owners.iter().map(user).collect())
    }

    fn changed(
        &mut self,
        owner: &Place,
        _old: Option<&Arc<[Name]>>,
        _new: Option<&Arc<[Name]>>,
    ) -> Vec<ObjectKey> {
        self.withhold(&owner.name);
        self.changed_everywhere()
    }

    fn removed(
        &mut self,
        _namespace: &Arc<str>,
        driver: &Arc<str>,
        _last: &Record<Arc<[Name]>>,
        _how: Left,
    ) -> Vec<ObjectKey> {
        self.withhold(driver);
        self.changed_everywhere()
    }

    fn listed(&mut self) -> Vec<ObjectKey> {
        self.serves(DRIVER_OWNER, true)
    }

    /// Then no driver has an owner.
    fn unserved(&mut self) -> Vec<ObjectKey> {
        self.serves(DRIVER_OWNER, false)
    }

    /// Then any driver may have one.
    fn forbidden(&mut self) -> Vec<ObjectKey> {
        self.may_not_see(DRIVER_OWNER)
    }
}
