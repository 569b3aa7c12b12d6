//! A device and a Pod from arbitrary JSON. Every resource is counted or reported as unaccounted, the
//! conversions between API versions report every loss, and a ledger forgets a removed Pod.
#![no_main]

use dragoman_accounting::claim::contribution::{Contribution, Generation};
use dragoman_accounting::ledger::charge::charge;
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_accounting::ledger::{Bucket, Charging, NodeLedger, Stage};
use dragoman_accounting::pod::advice::advice;
use dragoman_accounting::pod::budget::{Checks, defaulted, refused};
use dragoman_accounting::pod::cgroups::Kubelet;
use dragoman_accounting::pod::requests::Variant;
use dragoman_accounting::pod::resize::{Rules, resize};
use dragoman_accounting::wire::{device, pod_status};
use dragoman_objects::{Pod, ResourceSlice};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(fields) = serde_json::from_str::<device::DeviceFields>(text)
        && let Ok((footprint, _)) = device::read(&fields)
    {
        let (wire, losses) = device::to_1_37(&footprint, true);
        let back = device::from_1_37(&wire).unwrap();
        assert_eq!(losses.is_empty(), back == footprint);
        let (old, losses) = device::to_1_36(&footprint);
        let (back, _) = device::from_1_36(&old).unwrap();
        assert!(!losses.is_empty() || back == footprint);
        device::from_draft(&device::to_draft(&footprint).0).unwrap();
    }
    if let Ok(slice) = serde_json::from_str::<ResourceSlice>(text) {
        drop(cluster::Slice::from(&slice));
    }
    let Ok(pod) = serde_json::from_str::<Pod>(text) else { return };
    let pod = cluster::Pod::from(&pod);
    let claims = &pod.view.contributions;
    if let Ok((newest, _)) = pod_status::to_1_38(claims) {
        let recorded = pod_status::Recorded { additional: &newest, ..Default::default() };
        let mut unaccounted = Vec::new();
        let back = pod_status::read(recorded, "Pod", &mut unaccounted).contributions;
        assert!(unaccounted.is_empty());
        let same = |claim: &Contribution| {
            back.iter().any(|back| back.source.is(&claim.source) && back.total() == claim.total())
        };
        // A claim without lines, for example an unreadable one, need not survive the conversion.
        assert!(claims.iter().filter(|claim| !claim.lines.is_empty()).all(same));
    }
    if let (Ok(budget), Ok(_)) = (defaulted(&pod.view, Checks::V1_37), refused(&pod.view)) {
        assert_eq!(budget.is_some(), pod.view.pod_level.is_some());
    }
    let _ = advice(&pod.view, Kubelet::V1_37);
    let _ = resize(&pod.view, &pod.view, Rules::V1_37);
    for (variant, charging) in [(Variant::WholeLife, Charging::PerClaim), (Variant::Peak, Charging::InTree)] {
        let mut ledger = NodeLedger::new(charging);
        ledger.put_pod(charge(&pod.view, Stage::Bound, variant, pod.unaccounted.clone()));
        assert!(ledger.is_consistent());
        ledger.holder(Scheduler::Aware(Generation::V1_37));
        ledger.violations();
        for resource in ledger.resources() {
            let held: i128 = ledger.who_has(resource).iter().map(|held| i128::from(held.amount)).sum();
            assert_eq!(held, ledger.requested(resource));
            assert!(Bucket::TAKING.iter().all(|bucket| ledger.charged(*bucket, resource) >= 0));
        }
        ledger.remove_pod(&pod.view.uid);
        assert!(ledger.resources().is_empty() && ledger.is_consistent());
    }
});
