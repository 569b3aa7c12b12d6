//! Fragmentation over generated weeks: jobs that want parts of GPUs or whole ones come and go; one that finds nothing goes elsewhere.
//! First fit and best fit serve the same jobs. `cargo test -p dragoman-allocator --test fragmentation -- --nocapture` prints the
//! figures.
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;

use dragoman_allocator::input::Claim;
use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Choice, Gates, Options, Outcome, Overlay, PodClaims, Snapshot, allocate};
use fastrand::Rng;
use serde_json::{Map, Value, json};

const GPUS: usize = 8;
/// The slices of a GPU. A partition has eight, four, two or one of them, one behind the other.
const SLICES: usize = 8;
/// The weeks that are played.
const WEEKS: u64 = 4;
const MINUTES: u64 = 7 * 24 * 60;
/// Partitions that jobs want, in slices, and how many of a hundred jobs want each.
const MIX: [(usize, u64); 4] = [(1, 45), (2, 25), (4, 18), (8, 12)];

/// A job that wants one device.
#[derive(Clone, Copy)]
struct Job {
    slices: usize,
    comes: u64,
    minutes: u64,
}

/// Jobs that want three quarters of all slices on average.
fn jobs(rng: &mut Rng) -> Vec<Job> {
    let mean: u64 = MIX.iter().map(|(slices, share)| *slices as u64 * share).sum();
    let each = 180;
    // A job takes mean/100 slices for `each` minutes.
    let between = mean * each * 8 / (100 * 6 * (GPUS * SLICES) as u64);
    let (mut jobs, mut comes) = (Vec::new(), 0);
    loop {
        comes += rng.u64(0..=2 * between);
        if comes >= MINUTES {
            return jobs;
        }
        let mut dice = rng.u64(0..100);
        let wants = |(slices, share): &(usize, u64)| {
            let is_it = dice < *share;
            dice = dice.saturating_sub(*share);
            is_it.then_some(*slices)
        };
        let slices = MIX.iter().find_map(wants).unwrap();
        // A few jobs are long.
        let minutes = if rng.u64(0..10) == 0 { rng.u64(each..9 * each) } else { rng.u64(10..each) };
        jobs.push(Job { slices, comes, minutes });
    }
}

/// The order in which a driver publishes its devices.
#[derive(Debug, Clone, Copy)]
enum Published {
    /// GPU by GPU, the large partitions first.
    Sorted,
    /// As a driver does that keeps them in a map.
    Shuffled,
}

fn cluster(published: Published) -> Snapshot {
    let counters = |first: usize, slices: usize| -> Map<String, Value> {
        (first..first + slices).map(|slice| (format!("slice-{slice}"), json!({"value": "1"}))).collect()
    };
    let device = |gpu: usize, slices: usize, first: usize| {
        json!({"name": format!("{gpu}-{slices}-{first}"), "attributes": {"slices": {"int": slices}},
            "consumesCounters": [{"counterSet": format!("gpu-{gpu}"), "counters": counters(first, slices)}]})
    };
    let devices = (0..GPUS).flat_map(|gpu| {
        MIX.iter().rev().flat_map(move |(slices, _)| {
            (0..SLICES).step_by(*slices).map(move |first| device(gpu, *slices, first))
        })
    });
    let mut devices: Vec<Value> = devices.collect();
    if let Published::Shuffled = published {
        Rng::with_seed(1).shuffle(&mut devices);
    }
    let sets = (0..GPUS).map(|gpu| json!({"name": format!("gpu-{gpu}"), "counters": counters(0, SLICES)}));
    let slice = |name: &str, field: &str, value: Vec<Value>| {
        let mut slice = json!({"metadata": {"name": name}, "spec": {"driver": "gpu.example.com", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}}});
        slice["spec"][field] = json!(value);
        slice
    };
    let scenario = json!({"nodes": [{"metadata": {"name": "n"}}], "deviceClasses": [{"metadata": {"name": "gpu"}}],
        "resourceSlices": [slice("a", "sharedCounters", sets.collect()), slice("b", "devices", devices)],
        "candidates": ["n"]});
    let scenario: Scenario = serde_json::from_value(scenario).unwrap();
    scenario.snapshot(&Snapshot::default()).unwrap()
}

fn claim(number: usize, slices: usize) -> Claim {
    let expression = format!("device.attributes['gpu.example.com'].slices == {slices}");
    let claim = json!({"metadata": {"namespace": "ns", "name": format!("c-{number}"), "uid": format!("c-{number}")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu",
            "allocationMode": "ExactCount", "count": 1, "selectors": [{"cel": {"expression": expression}}]}}]}}});
    let claims: Scenario = serde_json::from_value(json!({"resourceClaims": [claim]})).unwrap();
    claims.cluster().claims.remove(0)
}

/// Figures of some weeks.
#[derive(Debug, Default)]
struct Figures {
    jobs: usize,
    /// Jobs that were refused, by size.
    refused: BTreeMap<usize, usize>,
    /// Jobs that were refused although as many slices were free.
    split: usize,
    /// Slices and minutes of all jobs that found a device.
    served: u64,
}

impl Figures {
    fn refused(&self, slices: usize) -> usize {
        self.refused.get(&slices).copied().unwrap_or_default()
    }
}

/// Plays a week.
fn play(jobs: &[Job], (choice, published): (Choice, Published), figures: &mut Figures) {
    let mut snapshot = cluster(published);
    let mut running: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut used = 0;
    figures.jobs += jobs.len();
    for (number, job) in jobs.iter().enumerate() {
        let later = running.split_off(&(job.comes + 1));
        for ended in std::mem::replace(&mut running, later).into_values().flatten() {
            snapshot = snapshot.without_claim(&format!("c-{ended}"));
            used -= jobs[ended].slices;
        }
        let mut wanted = claim(number, job.slices);
        let claims = PodClaims::new(&snapshot, vec![wanted.clone().into()], Gates::default());
        let options = Options { choice, ..Options::default() };
        if let Outcome::Solution(solution) = allocate(&snapshot, &Overlay::default(), "n", &claims, options) {
            wanted.allocation = Some(solution.allocations(&mut || "none".into()).unwrap().remove(0).1);
            snapshot = snapshot.with_claim(wanted);
            used += job.slices;
            running.entry(job.comes + job.minutes).or_default().push(number);
            figures.served += job.slices as u64 * job.minutes;
        } else {
            *figures.refused.entry(job.slices).or_default() += 1;
            figures.split += usize::from(used + job.slices <= GPUS * SLICES);
        }
    }
}

#[test]
fn large_jobs_find_more_where_small_ones_split_nothing() {
    println!("published  choice    jobs  refused of 1, 2, 4, 8 slices  of them split  slices served, %");
    for published in [Published::Sorted, Published::Shuffled] {
        let weeks = |choice| {
            let mut figures = Figures::default();
            for seed in 1..=WEEKS {
                play(&jobs(&mut Rng::with_seed(seed)), (choice, published), &mut figures);
            }
            let Figures { jobs, split, served, .. } = &figures;
            let refused = MIX.map(|(slices, _)| figures.refused(slices));
            let served = *served as f64 * 100.0 / (WEEKS * MINUTES * (GPUS * SLICES) as u64) as f64;
            println!("{published:?}  {choice:?}  {jobs}  {refused:?}  {split}  {served:.1}");
            figures
        };
        let (first, best) = (weeks(Choice::FirstFit), weeks(Choice::BestFit));
        assert!(best.refused(SLICES) < first.refused(SLICES), "{published:?}: whole GPUs");
        assert!(best.split < first.split && best.served > first.served, "{published:?}: {best:?}, {first:?}");
    }
}
