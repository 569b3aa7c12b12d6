//! The promises of the protocol (docs/protocol.md 4).

use std::collections::BTreeSet;

use stateright::{Model as _, Property};

use crate::{Pod, Protocol, State};

fn are(state: &State, wanted: &[Pod]) -> Vec<usize> {
    let pods = state.api.pods.iter().enumerate();
    pods.filter(|(_, pod)| wanted.contains(pod)).map(|(number, _)| number).collect()
}

const OUT: [Pod; 2] = [Pod::Released, Pod::Bound];

/// The properties, by the names of the promises.
pub(crate) fn properties() -> Vec<Property<Protocol>> {
    vec![
        Property::always("P1", |_, state| no_device_twice(state, false)),
        Property::always("P1 released", |_, state| no_device_twice(state, true)),
        Property::always("P2", |model: &Protocol, state: &State| {
            let out = (0..state.api.pods.len()).filter(|pod| model.is_out(&state.api, *pod));
            model.taken(&state.api, &out.collect()) <= model.workload.cpus
        }),
        // What an allocator gives back in the moment of the release it allocates again.
        Property::always("P3", |model: &Protocol, state: &State| {
            let released = are(state, &[Pod::Released]).into_iter();
            let mut released = released.filter(|pod| *pod < model.workload.gated);
            released.all(|pod| model.is_ready(&state.api, pod) || state.robbed.contains(&pod))
        }),
        Property::always("P4", |model: &Protocol, state: &State| {
            are(state, &[Pod::Bound]).into_iter().all(|pod| model.is_ready(&state.api, pod))
        }),
        // Nothing is left to do only when every Pod has ended.
        Property::always("P5, P7", |model: &Protocol, state: &State| {
            let mut steps = Vec::new();
            model.actions(state, &mut steps);
            let stuck = steps.is_empty();
            // A Pod without the gate waits for devices of an owned driver until people give it the gate.
            let may_wait = |pod: usize| {
                model.guards.owned && pod >= model.workload.gated && !model.claims_of(pod).is_empty()
            };
            !stuck || (0..state.api.pods.len()).all(|pod| state.api.pod(pod) == Pod::Done || may_wait(pod))
        }),
    ]
}

/// Whether two claims of Pods have one device; with `released` those of Pods without the gate only.
fn no_device_twice(state: &State, released: bool) -> bool {
    let out = are(state, &OUT);
    let counts = |reserved: &BTreeSet<usize>| !released || reserved.iter().any(|pod| out.contains(pod));
    let mut seen = BTreeSet::new();
    let mut held = state.api.claims.iter().filter(|claim| counts(&claim.reserved));
    held.all(|claim| claim.device.is_none_or(|device| seen.insert(device)))
}
