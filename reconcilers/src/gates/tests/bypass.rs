//! Pods that passed the gate by.

use dragoman_machinery::controller::Fed;
use dragoman_machinery::watch::decode_item;

use super::passes::World;
use super::*;

fn gone(world: &mut World, object: &Value) {
    let decoded = decode_item::<Pod>(object.to_string().as_bytes()).expect("metadata");
    Fed::<Pod>::deleted(&mut world.index, decoded.meta());
}

#[test]
fn a_pod_that_passed_the_gate_by_is_counted_until_it_is_gone() {
    let mut world = World::default();
    let bare = |changes: Value| {
        let mut pod = json!({"spec": {"schedulingGates": []}});
        super::passes::merge(&mut pod, &changes);
        pod
    };
    world.pod("old", 1, &bare(json!({"spec": {"nodeName": "n"}})));
    assert_eq!(world.index.bypass.count(), 0, "the namespace takes no part");
    world.pod("gated", 2, &json!({}));
    assert_eq!(world.index.bypass.count(), 1, "it was there before the label");
    world.pod("plain", 3, &bare(json!({"spec": {"resourceClaims": []}})));
    assert_eq!(world.index.bypass.count(), 1, "a Pod without claims needs no gate");
    let extended = json!({"spec": {"resourceClaims": [], "nodeName": "n"},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "made"}}});
    world.pod("extended", 4, &bare(extended));
    assert_eq!(world.index.bypass.count(), 2);
    let released =
        json!({"metadata": {"annotations": {"dragoman.dev/released": "gated"}}, "spec": {"nodeName": "n"}});
    world.pod("gated", 5, &bare(released));
    assert_eq!(world.index.bypass.count(), 2, "it was behind the gate");
    world.pod("extended", 6, &bare(json!({"status": {"phase": "Succeeded"}})));
    assert_eq!(world.index.bypass.count(), 1, "it has ended");
    gone(&mut world, &World::pod_object("old", 7, &bare(json!({"spec": {"nodeName": "n"}}))));
    assert_eq!(world.index.bypass.count(), 0);
}
