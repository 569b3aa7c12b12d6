//! Claims that any tenant can create, and that a search must not spend much time on: the interrupt,
//! the budget and the limit of cost hold everywhere.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Options, Outcome, Overlay, PodClaims, Snapshot, allocate};
use serde_json::{Value, json};

/// A node with different devices, and a claim with these requests and constraints.
fn cluster(devices: usize, spec: &Value) -> Result<(Snapshot, PodClaims), Box<dyn Error>> {
    let device = |number: usize| {
        json!({"name": format!("gpu-{number}"), "attributes": {
            "number": {"int": number}, "x.io/slot": {"int": number % 11}}})
    };
    let scenario: Scenario = serde_json::from_value(json!({
        "nodes": [{"metadata": {"name": "node"}}], "deviceClasses": [{"metadata": {"name": "gpu"}}],
        "resourceSlices": [{"metadata": {"name": "s"}, "spec": {
            "driver": "gpu.example.com", "nodeName": "node",
            "pool": {"name": "node", "generation": 1, "resourceSliceCount": 1},
            "devices": (0..devices).map(device).collect::<Vec<Value>>()}}],
        "resourceClaims": [{"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "spec": {"devices": spec}}],
        "allocate": ["ns/c"], "candidates": ["node"]
    }))?;
    let snapshot = scenario.snapshot(&Snapshot::default())?;
    let claims = scenario.claims(&snapshot)?;
    Ok((snapshot, claims))
}

/// A request with many selectors (at most 32). Each costs nearly what Kubernetes allows.
fn expensive(mode: &str, selectors: usize, count: usize) -> Value {
    let selector = |number: usize| {
        let loops = format!("lists.range(700).all(x, lists.range(50).all(y, x + y + {number} >= 0))");
        json!({"cel": {"expression": format!("{loops} && device.attributes['gpu.example.com'].number >= 0")}})
    };
    let selectors: Vec<Value> = (0..selectors).map(selector).collect();
    let mut exactly = json!({"deviceClassName": "gpu", "allocationMode": mode, "selectors": selectors});
    if let (Some(exactly), "ExactCount") = (exactly.as_object_mut(), mode) {
        exactly.insert("count".to_owned(), json!(count));
    }
    json!({"requests": [{"name": "dear", "exactly": exactly}]})
}

fn outcome((snapshot, claims): &(Snapshot, PodClaims), options: Options<'_>) -> Outcome {
    allocate(snapshot, &Overlay::default(), "node", claims, options)
}

#[test]
fn selectors_of_a_pod_may_cost_only_so_much_together() -> Result<(), Box<dyn Error>> {
    // One device alone costs too much, or the fourth does.
    let cases = [("All", 32, 32), ("ExactCount", 32, 32), ("All", 4, 3), ("ExactCount", 4, 3)];
    for (mode, devices, selectors) in cases {
        let cluster = cluster(devices, &expensive(mode, selectors, devices))?;
        // The second time verdicts are remembered, which changes nothing.
        for _ in 0..2 {
            let Outcome::PodError(error) = outcome(&cluster, Options::default()) else {
                return Err(format!("{mode}: it must be too expensive").into());
            };
            let said = "claim ns/c: spec.devices.requests[0].exactly.selectors: the CEL expressions of the Pod's \
                        requests cost more than 10000000 on the devices of one node";
            assert_eq!(error.to_string(), said, "{mode}");
        }
    }
    Ok(())
}

#[test]
fn the_cost_of_selectors_is_work() -> Result<(), Box<dyn Error>> {
    for mode in ["All", "ExactCount"] {
        let cluster = cluster(3, &expensive(mode, 3, 3))?;
        let mut pauses = 0;
        let mut found = outcome(&cluster, Options { budget: Some(100), ..Options::default() });
        while let Outcome::BudgetSpent(paused) = found {
            pauses += 1;
            found = paused.resume(Options { budget: Some(100), ..Options::default() });
        }
        // The budget of a hundred devices does not suffice for one of these devices.
        assert_eq!(pauses, 3, "{mode}");
        assert!(matches!(found, Outcome::Solution(_)), "{mode}: {found:?}");
    }
    Ok(())
}

#[test]
fn a_search_that_is_put_aside_while_it_checks_all_devices_goes_on_there() -> Result<(), Box<dyn Error>> {
    let all = json!({"requests": [{"name": "all", "exactly": {"deviceClassName": "gpu", "allocationMode": "All",
        "selectors": [{"cel": {"expression": "device.attributes['gpu.example.com'].number % 4 == 1"}}]}}]});
    let cluster = cluster(40, &all)?;
    let mut pauses = 0;
    let mut found = outcome(&cluster, Options { budget: Some(1), ..Options::default() });
    while let Outcome::BudgetSpent(paused) = found {
        pauses += 1;
        found = paused.resume(Options { budget: Some(1), ..Options::default() });
    }
    let Outcome::Solution(solution) = found else { return Err("there are devices".into()) };
    let allocations = solution.allocations(&mut || "no device is shared".into())?;
    let names = allocations.iter().flat_map(|(_, allocation)| &allocation.devices.results);
    let names: Vec<&str> = names.map(|result| &*result.device).collect();
    assert_eq!(
        names,
        ["gpu-1", "gpu-5", "gpu-9", "gpu-13", "gpu-17", "gpu-21", "gpu-25", "gpu-29", "gpu-33", "gpu-37"]
    );
    assert!(pauses >= 40, "{pauses}");
    Ok(())
}

#[test]
fn an_interrupt_is_seen_before_anything_is_evaluated() -> Result<(), Box<dyn Error>> {
    let flag = Arc::new(AtomicBool::new(true));
    for mode in ["All", "ExactCount"] {
        let cluster = cluster(32, &expensive(mode, 32, 32))?;
        let found = outcome(&cluster, Options { interrupt: Some(&flag), ..Options::default() });
        assert!(matches!(found, Outcome::Cancelled), "{mode}: {found:?}");
    }
    Ok(())
}

/// Prints how long a search runs on once the flag is set (docs/performance.md).
#[test]
fn an_interrupt_ends_an_evaluation() -> Result<(), Box<dyn Error>> {
    for mode in ["All", "ExactCount"] {
        let mut longest = Duration::ZERO;
        for micros in [0, 300, 1_000, 3_000, 7_000, 20_000, 50_000] {
            let cluster = cluster(32, &expensive(mode, 32, 32))?;
            let flag = Arc::new(AtomicBool::new(false));
            let set = flag.clone();
            let setter = std::thread::spawn(move || {
                let began = Instant::now();
                while began.elapsed() < Duration::from_micros(micros) {
                    std::hint::spin_loop();
                }
                set.store(true, Ordering::Relaxed);
                Instant::now()
            });
            let found = outcome(&cluster, Options { interrupt: Some(&flag), ..Options::default() });
            let ended = Instant::now();
            let set = setter.join().map_err(|_| "the other thread failed")?;
            assert!(matches!(found, Outcome::Cancelled), "{mode}, after {micros} µs: {found:?}");
            longest = longest.max(ended.saturating_duration_since(set));
        }
        println!("{mode}: at most {longest:?} from the interrupt to the end");
    }
    Ok(())
}

/// Requests whose devices must differ in an attribute of eleven values.
fn different(requests: usize) -> Value {
    let request = |number: usize| {
        json!({"name": format!("r{number}"), "exactly":
            {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}})
    };
    json!({"requests": (0..requests).map(request).collect::<Vec<Value>>(),
        "constraints": [{"distinctAttribute": "x.io/slot"}]})
}

/// Trying them one by one takes minutes (12 requests) or years (30).
#[test]
fn more_requests_than_distinct_values_are_counted_not_tried() -> Result<(), Box<dyn Error>> {
    for requests in [12, 30] {
        let cluster = cluster(44, &different(requests))?;
        let found = outcome(&cluster, Options { budget: Some(100_000), ..Options::default() });
        assert!(matches!(found, Outcome::Unsatisfiable(_)), "{requests}: {found:?}");
    }
    let cluster = cluster(44, &different(11))?;
    let found = outcome(&cluster, Options { budget: Some(100_000), ..Options::default() });
    assert!(matches!(found, Outcome::Solution(_)), "{found:?}");
    Ok(())
}

/// Where others wait, costly selectors are left for later, and count once they were evaluated elsewhere.
#[test]
fn costly_selectors_are_spared_until_they_are_remembered() -> Result<(), Box<dyn Error>> {
    let spares = Options { spares_costly: true, ..Options::default() };
    for mode in ["All", "ExactCount"] {
        let cluster = cluster(2, &expensive(mode, 3, 2))?;
        let Outcome::BudgetSpent(paused) = outcome(&cluster, spares) else {
            return Err(format!("{mode}: nothing costly is evaluated").into());
        };
        assert!(paused.is_before_costly(), "{mode}");
        assert!(paused.work() < 10, "{mode}: {}", paused.work());
        let Outcome::BudgetSpent(paused) = paused.resume(spares) else {
            return Err(format!("{mode}: nor when it is resumed").into());
        };
        let found = paused.resume(Options::default());
        assert!(matches!(found, Outcome::Solution(_)), "{mode}: {found:?}");
        let found = outcome(&cluster, spares);
        assert!(matches!(found, Outcome::Solution(_)), "{mode}: {found:?}");
    }
    Ok(())
}

/// A selector of many large patterns takes seconds to compile, which CEL does not count.
#[test]
fn patterns_may_be_only_so_large_together() -> Result<(), Box<dyn Error>> {
    let selected = |patterns: usize| {
        let matches =
            (0..patterns).map(|number| format!("device.driver.matches('^\\\\w{{5,{}}}')", 10 + number));
        let expression = matches.map(|pattern| format!("!{pattern}")).collect::<Vec<String>>().join(" && ");
        json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount",
            "count": 1, "selectors": [{"cel": {"expression": expression}}]}}]})
    };
    let few = cluster(1, &selected(2))?;
    assert!(matches!(
        outcome(&few, Options { spares_costly: true, ..Options::default() }),
        Outcome::BudgetSpent(_)
    ));
    let found = outcome(&few, Options::default());
    assert!(matches!(found, Outcome::Solution(_)), "{found:?}");
    let Outcome::PodError(error) = outcome(&cluster(1, &selected(200))?, Options::default()) else {
        return Err("two hundred are too many".into());
    };
    assert!(error.message.contains("its patterns are too large together"), "{error}");
    Ok(())
}
