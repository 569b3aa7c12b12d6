//! A charge that several users share.

use super::Charging;
use crate::object::ObjectRef;
use crate::per_resource::Units;

/// The charge of one claim or device, as each of its users states it. Users normally agree. If they
/// differ, the larger amount counts ([`Charging::PerClaim`]), so that the order of events makes no
/// difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// Sorted by user.
    users: Vec<(ObjectRef, Units)>,
}

impl Shared {
    pub(super) fn put(&mut self, user: ObjectRef, units: Units) {
        match self.users.binary_search_by(|(known, _)| known.cmp(&user)) {
            Ok(at) => self.users.iter_mut().skip(at).take(1).for_each(|(_, known)| known.clone_from(&units)),
            // Room for one: nearly every claim and device has one user.
            Err(at) => {
                self.users.reserve_exact(1);
                self.users.insert(at, (user, units));
            }
        }
    }

    pub(super) fn remove(&mut self, user: &str) {
        self.users.retain(|(known, _)| known.uid() != user);
    }

    pub(super) fn users(&self) -> impl ExactSizeIterator<Item = &ObjectRef> {
        self.users.iter().map(|(user, _)| user)
    }

    /// The charge for all users: the largest of their amounts, or the sum ([`Charging::InTree`]).
    pub(super) fn charged(&self, charging: Charging) -> Units {
        let mut all = Units::default();
        for (resource, units) in self.users.iter().flat_map(|(_, units)| units.iter()) {
            let known = all.get(resource);
            all.set(
                resource,
                match charging {
                    Charging::PerClaim => known.max(units),
                    Charging::InTree => known.saturating_add(units),
                },
            );
        }
        all
    }
}
