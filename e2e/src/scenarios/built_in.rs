//! The same scenarios with the built-in claim controller, to show which of its defects the tested release
//! has.

use std::time::Instant;

use anyhow::ensure;

use super::{Scenario, lives, report, sharing, trouble};
use crate::control_plane::{Release, Shape};
use crate::world::{Bench, World};

/// Scenarios that fail with the built-in controller of 1.36.3. Each is listed in docs/upstream-defects.md.
const RED: &[&str] = &[
    "completed_pods_cost_nothing",
    "several_entries_and_a_late_template",
    "a_deleted_claim_is_made_again",
    "a_replaced_pod_gets_a_claim_of_its_own",
    "a_shared_claim_lives_as_long_as_its_last_pod",
    "a_generated_claim_held_by_an_unknown_consumer_is_at_rest",
    "an_allocation_without_finalizer_is_released_with_its_last_consumer",
    "a_pod_with_a_node_gets_its_reservations",
    "the_257th_consumer_is_told",
    "admin_access_without_the_label_is_said",
    "a_long_pod_name_with_a_dot_at_the_cut",
];

/// A scenario about claim names that only Dragoman computes.
const OURS: &str = "a_claim_name_taken_by_somebody_else_is_avoided";

/// Runs the scenarios whose name contains `filter` with the built-in controller, and requires that exactly
/// those of [`RED`] fail.
pub async fn run(bench: &Bench, filter: &str) -> anyhow::Result<()> {
    let scenarios: Vec<Scenario> =
        [lives::all(), sharing::all(), trouble::all()].into_iter().flatten().collect();
    let (mut surprises, mut count) = (Vec::new(), 0);
    for scenario in scenarios.iter().filter(|s| s.name.contains(filter) && s.name != OURS) {
        // Each scenario has its own cluster: a controller that never rests would disturb the next scenario.
        let release = Release::V1_36;
        let shape = Shape { release, built_in: true, built_in_qps: Some(5000), ..Shape::default() };
        let world = World::start(bench, &format!("built-in-{}", scenario.name), shape, 4, 32).await?;
        let bystander = world.dragoman("observe", &[]).await?;
        let started = Instant::now();
        let outcome = (scenario.run)(&world, &bystander).await;
        let name = format!("built-in/{}", scenario.name);
        let red = report(bench, &name, started, std::slice::from_ref(&world.directory), outcome).is_err();
        if red != RED.contains(&scenario.name) {
            surprises.push(format!("{} is {}", scenario.name, if red { "red" } else { "green" }));
        }
        count += 1;
        bystander.stop().await?;
        world.stop().await?;
    }
    println!("{count} scenarios with the built-in controller");
    ensure!(count > 0, "no scenario matches");
    ensure!(surprises.is_empty(), "not as docs/upstream-defects.md says: {}", surprises.join(", "));
    Ok(())
}
