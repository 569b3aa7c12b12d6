use super::super::drain::{DrainAction, action};
use super::*;

fn judged(claim: Value) -> DrainAction {
    let claim: dragoman_objects::ResourceClaim = decode(claim).expect("claim");
    action(&claim.into())
}

#[test]
fn what_is_allocated_or_reserved_is_held_and_the_rest_is_let_go() {
    let protected = in_use(plain("c"), &[]);
    assert_eq!(judged(plain("c")), DrainAction::Unprotected);
    assert_eq!(
        judged(protected.clone()),
        DrainAction::Held("allocated, reserved for no consumer".to_owned())
    );
    assert_eq!(
        judged(in_use(plain("c"), &["u"])),
        DrainAction::Held("allocated, reserved for pods pod".to_owned())
    );
    let reserved = with(in_use(plain("c"), &["u"]), "/status/allocation", Value::Null);
    assert_eq!(judged(reserved), DrainAction::Held("not allocated, reserved for pods pod".to_owned()));
    let mut free = with(protected, "/status", json!({}));
    free["metadata"]["finalizers"] = json!(["other", "resource.kubernetes.io/delete-protection"]);
    free["metadata"]["resourceVersion"] = json!("7");
    match judged(free) {
        DrainAction::Free(write) => assert_eq!(operations(&write), ["remove /metadata/finalizers/1"]),
        other => panic!("{other:?}"),
    }
}
