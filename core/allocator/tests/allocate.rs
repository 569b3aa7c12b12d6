//! Allocation on small clusters.

use std::sync::Arc;

use dragoman_allocator::input::{Claim, Node};
use dragoman_allocator::{Gates, Options, Outcome, Overlay, PodClaims, Snapshot, allocate};
use dragoman_objects::{
    Allocation, Attribute, ClaimDevices, Class, Constraint, Device, ExactRequest, Name, Pool, Request,
    Selector, Slice, SubRequest,
};

fn device(number: usize, model: &str) -> Device {
    let attributes = [
        ("model".into(), Attribute::String(model.into())),
        ("uuid".into(), Attribute::String(format!("gpu-{number}").into())),
    ];
    Device {
        name: format!("gpu-{number}").into(),
        attributes: Arc::new(attributes.into()),
        ..Device::default()
    }
}

fn slice(node: &str, devices: Vec<Device>) -> Slice {
    Slice {
        name: format!("{node}-gpus").into(),
        driver: "gpu.example.com".into(),
        pool: Pool { name: node.into(), generation: 1, resource_slice_count: 1 },
        node_name: Some(node.into()),
        devices,
        ..Slice::default()
    }
}

/// Returns a cluster of one node, with devices of these models.
fn cluster(models: &[&str]) -> Snapshot {
    let devices = models.iter().enumerate().map(|(number, model)| device(number, model)).collect();
    Snapshot::default()
        .with_node(Node { name: "node".into(), ..Node::default() })
        .with_class(Class { name: "gpu".into(), ..Class::default() })
        .with_slice(slice("node", devices))
}

fn exactly(name: &str, count: i64, selector: Option<&str>) -> Request {
    let selectors = selector.map(|expression| Selector {
        cel: Some(dragoman_objects::CelSelector { expression: expression.into() }),
    });
    let asked = SubRequest {
        device_class_name: "gpu".into(),
        count,
        selectors: selectors.into_iter().collect(),
        ..SubRequest::default()
    };
    Request {
        name: name.into(),
        exactly: Some(ExactRequest { admin_access: None, asked }),
        ..Request::default()
    }
}

fn claim(name: &str, requests: Vec<Request>, constraints: Vec<Constraint>) -> Claim {
    Claim {
        uid: format!("uid-{name}").into(),
        namespace: "default".into(),
        name: name.into(),
        devices: ClaimDevices { requests, constraints, ..ClaimDevices::default() },
        allocation: None,
    }
}

fn pod(snapshot: &Snapshot, claims: Vec<Claim>) -> PodClaims {
    PodClaims::new(snapshot, claims.into_iter().map(Arc::new).collect(), Gates::default())
}

fn same_model() -> Constraint {
    Constraint { match_attribute: Some("gpu.example.com/model".into()), ..Constraint::default() }
}

/// Returns the allocations of all claims, in order, or the outcome as text.
fn devices(outcome: Outcome) -> Result<Vec<(Name, Allocation)>, String> {
    match outcome {
        Outcome::Solution(solution) => {
            solution.allocations(&mut || Name::from("share")).map_err(|error| error.to_string())
        }
        Outcome::Unsatisfiable(_) => Err("none".to_owned()),
        Outcome::PodError(error) => Err(error.to_string()),
        other => Err(format!("{other:?}")),
    }
}

fn names(outcome: Outcome) -> Result<Vec<String>, String> {
    let allocations = devices(outcome)?;
    let results = allocations.iter().flat_map(|(_, allocation)| &allocation.devices.results);
    Ok(results.map(|result| result.device.to_string()).collect())
}

fn on_node(snapshot: &Snapshot, claims: Vec<Claim>) -> Result<Vec<String>, String> {
    names(allocate(snapshot, &Overlay::default(), "node", &pod(snapshot, claims), Options::default()))
}

#[test]
fn the_first_devices_that_do_are_taken() {
    let snapshot = cluster(&["a", "b", "a"]);
    let wanted = |selector| on_node(&snapshot, vec![claim("c", vec![exactly("r", 1, selector)], vec![])]);
    assert_eq!(wanted(None), Ok(vec!["gpu-0".to_owned()]));
    let b = "device.attributes['gpu.example.com'].model == 'b'";
    assert_eq!(wanted(Some(b)), Ok(vec!["gpu-1".to_owned()]));
    assert_eq!(wanted(Some("device.attributes['gpu.example.com'].model == 'c'")), Err("none".to_owned()));
}

#[test]
fn on_a_full_node_nothing_is_left_but_for_admins() {
    let empty = cluster(&["a", "b"]);
    let wanted = claim("first", vec![exactly("r", 2, None)], vec![]);
    let outcome =
        allocate(&empty, &Overlay::default(), "node", &pod(&empty, vec![wanted.clone()]), Options::default());
    let allocation = devices(outcome).unwrap().pop().map(|(_, allocation)| allocation);
    let full = empty.with_claim(Claim { allocation, ..wanted });
    // The failing selector is not reached.
    let fails = exactly("r", 1, Some("device.attributes['gpu.example.com'].nothing == 1"));
    let another = |request: Request| on_node(&full, vec![claim("another", vec![request], vec![])]);
    assert_eq!(another(fails.clone()), Err("none".to_owned()));
    assert_eq!(another(exactly("r", 0, None)), Ok(vec![]));
    let mut admin = exactly("r", 1, None);
    admin.exactly.as_mut().unwrap().admin_access = Some(true);
    assert_eq!(another(admin), Ok(vec!["gpu-0".to_owned()]));
    let released = full.without_claim("uid-first");
    let another = |request: Request| on_node(&released, vec![claim("another", vec![request], vec![])]);
    assert_eq!(another(exactly("r", 1, None)), Ok(vec!["gpu-0".to_owned()]));
    assert!(another(fails).unwrap_err().contains("no such key"));
}

#[test]
fn an_earlier_request_makes_room_for_a_later_one() {
    let snapshot = cluster(&["a", "b"]);
    let requests = vec![
        exactly("any", 1, None),
        exactly("a", 1, Some("device.attributes['gpu.example.com'].model == 'a'")),
    ];
    assert_eq!(
        on_node(&snapshot, vec![claim("c", requests, vec![])]),
        Ok(vec!["gpu-1".to_owned(), "gpu-0".to_owned()])
    );
}

#[test]
fn an_error_names_the_object_and_where() {
    let snapshot = cluster(&["a"]);
    let wrong =
        on_node(&snapshot, vec![claim("c", vec![exactly("r", 1, Some("device.colour == 'red'"))], vec![])]);
    let wrong = wrong.unwrap_err();
    assert!(
        wrong.starts_with("claim default/c: spec.devices.requests[0].exactly.selectors[0].cel.expression:"),
        "{wrong}"
    );
    assert!(wrong.contains("undefined field 'colour'"), "{wrong}");
    let mut request = exactly("r", 1, None);
    request.exactly.as_mut().unwrap().asked.device_class_name = "absent".into();
    let wrong = on_node(&snapshot, vec![claim("c", vec![request], vec![])]).unwrap_err();
    assert!(wrong.contains("could not retrieve device class absent"), "{wrong}");
    // No API server stores it. Nothing is allocated for it, and no claim is said to have what it asks for.
    let wrong = on_node(&snapshot, vec![claim("c", vec![exactly("r", -1, None)], vec![])]).unwrap_err();
    assert!(wrong.starts_with("claim default/c: spec.devices.requests[0].exactly.count:"), "{wrong}");
}

/// Upstream needs at least 10 factorial steps for these (kubernetes#131730).
#[test]
fn one_device_too_few_is_found_out_soon() {
    let work = |requests: usize, count: i64, models: &[&str], constraints: Vec<Constraint>| {
        let snapshot = cluster(models);
        let requests = (0..requests).map(|number| exactly(&format!("r{number}"), count, None)).collect();
        let claims = pod(&snapshot, vec![claim("c", requests, constraints)]);
        let options = Options { budget: Some(20_000), ..Options::default() };
        names(allocate(&snapshot, &Overlay::default(), "node", &claims, options))
    };
    let none = Err("none".to_owned());
    assert_eq!(work(12, 1, &["a"; 11], vec![]), none);
    assert_eq!(work(32, 1, &["a"; 31], vec![]), none);
    assert_eq!(work(1, 20, &["a"; 19], vec![]), none);
    // Devices that differ, and each suits every request.
    let models: Vec<String> = (0..31).map(|number| format!("m{number}")).collect();
    let models: Vec<&str> = models.iter().map(String::as_str).collect();
    assert_eq!(work(32, 1, &models, vec![]), none);
    // Eight models with seven devices each where eight are wanted, then a model with enough.
    let groups: Vec<&str> = ["a", "b", "c", "d", "e", "f", "g", "h"].iter().flat_map(|m| [*m; 7]).collect();
    assert_eq!(work(8, 1, &groups, vec![same_model()]), none);
    let mut enough = groups.clone();
    enough.extend(["z"; 8]);
    let first: Vec<String> = (56..64).map(|number| format!("gpu-{number}")).collect();
    assert_eq!(work(8, 1, &enough, vec![same_model()]), Ok(first));
}

#[test]
fn an_assumed_claim_counts_once_and_can_be_taken_back() {
    let snapshot = cluster(&["a", "a"]);
    let first = claim("first", vec![exactly("r", 1, None)], vec![]);
    let mut overlay = Overlay::default();
    let allocated = |snapshot: &Snapshot, overlay: &Overlay, name: &str| {
        let claims = pod(snapshot, vec![claim(name, vec![exactly("r", 1, None)], vec![])]);
        devices(allocate(snapshot, overlay, "node", &claims, Options::default()))
    };
    let (uid, allocation) = allocated(&snapshot, &overlay, "first").unwrap().remove(0);
    overlay.savepoint();
    overlay.assume(uid.clone(), allocation.clone());
    let second = allocated(&snapshot, &overlay, "second").unwrap().remove(0);
    assert_eq!(&*second.1.devices.results[0].device, "gpu-1");

    // A claim that the API has observed counts once.
    let seen = snapshot.with_claim(Claim { allocation: Some(allocation), ..first });
    assert_eq!(allocated(&seen, &overlay, "second").unwrap().remove(0).1, second.1);
    overlay.assume(second.0.clone(), second.1.clone());
    assert_eq!(allocated(&seen, &overlay, "third").unwrap_err(), "none");

    // The overlay keeps an allocation that the API has dropped.
    overlay.roll_back();
    assert_eq!(&*allocated(&snapshot, &overlay, "third").unwrap()[0].1.devices.results[0].device, "gpu-0");
    let freed = seen.without_claim(&uid);
    assert_eq!(&*allocated(&freed, &overlay, "third").unwrap()[0].1.devices.results[0].device, "gpu-0");
}

#[test]
fn a_search_is_put_aside_and_gone_on_with() {
    let snapshot = cluster(&["a", "b", "c", "d", "a"]);
    let claims = pod(&snapshot, vec![claim("c", vec![exactly("r", 2, None)], vec![same_model()])]);
    let options = Options { budget: Some(1), ..Options::default() };
    let mut outcome = allocate(&snapshot, &Overlay::default(), "node", &claims, options);
    let mut pauses = 0;
    while let Outcome::BudgetSpent(paused) = outcome {
        assert_eq!(paused.revision(), snapshot.revision());
        outcome = paused.resume(options);
        pauses += 1;
    }
    assert!(pauses > 1, "{pauses}");
    assert_eq!(names(outcome), Ok(vec!["gpu-0".to_owned(), "gpu-4".to_owned()]));
    let flag = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let options = Options { interrupt: Some(&flag), ..Options::default() };
    let outcome = allocate(&snapshot, &Overlay::default(), "node", &claims, options);
    assert!(matches!(outcome, Outcome::Cancelled), "{outcome:?}");
}

/// Gives two devices of which a heavy one takes two rooms, within so many rooms. Returns them, and how many solutions were
/// judged.
#[expect(clippy::unwrap_used, reason = "no device is shared")]
fn within(rooms: usize, are_alike: bool) -> (Result<Vec<String>, String>, usize) {
    let snapshot = cluster(&["heavy", "heavy", "light", "light"]);
    let claims = pod(&snapshot, vec![claim("c", vec![exactly("r", 2, None)], vec![])]);
    let takes = |device: &str| if matches!(device, "gpu-0" | "gpu-1") { 2 } else { 1 };
    let weight = |_: &str, _: &str, device: &str| are_alike.then_some(takes(device));
    let mut outcome = allocate(&snapshot, &Overlay::default(), "node", &claims, Options::default());
    let mut judged = 0;
    while let Outcome::Solution(solution) = outcome {
        judged += 1;
        let allocations = solution.allocations(&mut || "share".into()).unwrap();
        let results = allocations.iter().flat_map(|(_, allocation)| &allocation.devices.results);
        if results.map(|result| takes(&result.device)).sum::<u64>() <= rooms as u64 {
            return (names(Outcome::Solution(solution)), judged);
        }
        outcome = solution.refused(&weight, Options::default());
    }
    (names(outcome), judged)
}

#[test]
fn what_is_refused_is_passed_over_with_all_that_is_like_it() {
    let pair = |one: &str, other: &str| Ok(vec![one.to_owned(), other.to_owned()]);
    assert_eq!(within(4, true), (pair("gpu-0", "gpu-1"), 1));
    assert_eq!(within(3, true), (pair("gpu-0", "gpu-2"), 2));
    assert_eq!(within(2, true), (pair("gpu-2", "gpu-3"), 3));
    assert_eq!(within(1, true), (Err("none".to_owned()), 3));
    assert_eq!(within(2, false), (pair("gpu-2", "gpu-3"), 6), "every pair is tried");
}

#[test]
fn an_interrupt_ends_the_search() {
    let snapshot = cluster(&["a"; 12]);
    let requests = (0..12).map(|number| exactly(&format!("r{number}"), 1, None));
    let mut requests: Vec<Request> = requests.collect();
    requests.push(exactly("none", 1, Some("device.attributes['gpu.example.com'].model == 'b'")));
    let claims = pod(&snapshot, vec![claim("c", requests, vec![])]);
    let flag = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let options = Options { interrupt: Some(&flag), every_branch: true, ..Options::default() };
    let outcome = allocate(&snapshot, &Overlay::default(), "node", &claims, options);
    assert!(matches!(outcome, Outcome::Cancelled), "{outcome:?}");
}

/// A derived snapshot equals one that was built at once, and older snapshots do not change.
#[test]
fn a_derived_snapshot_is_like_a_new_one() {
    let first = cluster(&["a", "b"]);
    let wanted =
        |snapshot: &Snapshot| on_node(snapshot, vec![claim("c", vec![exactly("r", 1, None)], vec![])]);
    assert_eq!(wanted(&first), Ok(vec!["gpu-0".to_owned()]));
    let held = Claim {
        allocation: Some(serde_json::from_str(
            r#"{"devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "node", "device": "gpu-0"}]}}"#,
        ).unwrap()),
        ..claim("held", vec![], vec![])
    };
    let second = first.with_claim(held);
    assert_eq!(wanted(&second), Ok(vec!["gpu-1".to_owned()]));
    let mut newer = slice("node", vec![device(7, "a"), device(0, "a")]);
    newer.pool.generation = 2;
    let third = second.with_slice(newer);
    assert_eq!(wanted(&third), Ok(vec!["gpu-7".to_owned()]));
    assert_eq!(wanted(&third.without_slice("node-gpus")), Err("none".to_owned()));
    assert_eq!(wanted(&third.without_claim("uid-held")), Ok(vec!["gpu-7".to_owned()]));
    assert_eq!(wanted(&first), Ok(vec!["gpu-0".to_owned()]));
    assert!(third.revision() > second.revision() && second.revision() > first.revision());
    assert_eq!(
        third.attribute("gpu.example.com", "node", "gpu-7", "gpu.example.com/model"),
        Some(&Attribute::String("a".into()))
    );
}

/// Kinds of devices are told apart anew where a solution is refused: what pruning has found out before is about other kinds.
#[test]
fn what_was_pruned_before_a_refusal_rules_nothing_else_out() {
    let bare = std::iter::repeat_n("bare", 40);
    let models: Vec<&str> = ["pair", "pair"].into_iter().chain(bare).chain(["pair"; 3]).collect();
    let snapshot = cluster(&models);
    let (last, model) = ("device.attributes['gpu.example.com'].uuid == 'gpu-44'", "gpu.example.com/model");
    let not_last = format!("!({last})");
    let requests = vec![
        exactly("a", 1, None),
        exactly("b", 1, None),
        exactly("c", 1, Some(&not_last)),
        exactly("d", 1, Some(last)),
    ];
    let requests_of = vec!["c".into(), "d".into()];
    let alike =
        Constraint { requests: requests_of, match_attribute: Some(model.into()), ..Constraint::default() };
    let claims = pod(&snapshot, vec![claim("c", requests, vec![alike])]);
    let outcome = allocate(&snapshot, &Overlay::default(), "node", &claims, Options::default());
    let Outcome::Solution(solution) = outcome else { panic!("{outcome:?}") };
    // The first and the third of the pairs are heavy.
    let weight = |_: &str, _: &str, device: &str| Some(u64::from(matches!(device, "gpu-0" | "gpu-42")));
    let next = names(solution.refused(&weight, Options::default()));
    assert_eq!(next, Ok(["gpu-0", "gpu-1", "gpu-43", "gpu-44"].map(str::to_owned).to_vec()));
}
