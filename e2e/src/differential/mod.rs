//! The differential lane: it runs the same script once with the built-in claim controller and once with
//! Dragoman, and compares the histories object by object.
//!
//! The histories hold every version of every claim, of the claim names in Pod status and of every Event
//! about claims, as a watch saw them. Names, uids and times are made equal. Each deliberate difference is
//! declared. An undeclared difference fails the lane, and so does a declared one that does not occur.

mod history;
mod script;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};

use crate::control_plane::{Release, Shape};
use crate::dragoman::Dragoman;
use crate::world::{Bench, World};
use history::Histories;
pub(crate) use history::Recorder;
use script::{Chapter, DIFFERENCES, ROWS};

/// Runs the lane and returns the number of objects with equal histories.
pub(crate) async fn run(bench: &Bench) -> anyhow::Result<usize> {
    let chapters = script::chapters();
    covered(&chapters)?;
    let built_in = side(bench, "differential-built-in", true, &chapters).await;
    let ours = side(bench, "differential-dragoman", false, &chapters).await;
    compare(&built_in?, &ours?)
}

/// Checks that the chapters visit every row of the specification.
fn covered(chapters: &[Chapter]) -> anyhow::Result<()> {
    let visited: BTreeSet<&str> = chapters.iter().flat_map(|c| c.rows).copied().collect();
    let missing: Vec<_> = ROWS.iter().filter(|row| !visited.contains(**row)).collect();
    let unknown: Vec<_> = visited.iter().filter(|row| !ROWS.contains(row)).collect();
    println!("        {} of {} rows visited", ROWS.len() - missing.len(), ROWS.len());
    ensure!(missing.is_empty(), "rows that no chapter visits: {missing:?}");
    ensure!(unknown.is_empty(), "chapters name rows that do not exist: {unknown:?}");
    Ok(())
}

/// Runs all chapters on one side and returns the histories by chapter.
async fn side(
    bench: &Bench,
    name: &str,
    built_in: bool,
    chapters: &[Chapter],
) -> anyhow::Result<BTreeMap<&'static str, Histories>> {
    let (mut all, mut broken) = (BTreeMap::new(), Vec::new());
    for pod_groups in [false, true] {
        let name = format!("{name}{}", if pod_groups { "-groups" } else { "" });
        // The intended differences are those to the controller of this release.
        let release = Release::V1_36;
        let shape = Shape { release, built_in, built_in_qps: Some(5000), pod_groups, ..Shape::default() };
        let chosen = chapters.iter().filter(|chapter| chapter.pod_groups == pod_groups);
        tell(bench, &name, shape, chosen, &mut all, &mut broken).await?;
    }
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(all)
}

/// Runs chapters on a control plane of one shape.
async fn tell(
    bench: &Bench,
    name: &str,
    shape: Shape,
    chapters: impl Iterator<Item = &Chapter>,
    all: &mut BTreeMap<&'static str, Histories>,
    broken: &mut Vec<String>,
) -> anyhow::Result<()> {
    let built_in = shape.built_in;
    let world = World::start(bench, name, shape, 2, 16).await?;
    let dragoman = if built_in { None } else { Some(world.dragoman("own", &[]).await?) };
    for chapter in chapters {
        let ns = world.namespace(chapter.name).await?;
        let recorder = Recorder::start(&world.client, &ns, chapter.pod_groups).await;
        let told = async {
            (chapter.run)(&world, &ns).await?;
            world.rest(&ns).await
        };
        if let Err(error) = told.await {
            broken.push(format!("{name}, {}: {error:#}", chapter.name));
        }
        all.insert(chapter.name, recorder.histories(&world.plane.audit().collected_claims(&ns)));
    }
    if let Some(dragoman) = dragoman {
        Dragoman::stop(dragoman).await?;
    }
    world.stop().await
}

fn compare(
    built_in: &BTreeMap<&'static str, Histories>,
    ours: &BTreeMap<&'static str, Histories>,
) -> anyhow::Result<usize> {
    let (mut equal, mut wrong, mut occurred) = (0, Vec::new(), BTreeSet::new());
    let none = Vec::new();
    for (chapter, theirs) in built_in {
        let ours = ours.get(chapter).context("chapter")?;
        let objects: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
        for object in objects {
            let (a, b) = (theirs.get(object).unwrap_or(&none), ours.get(object).unwrap_or(&none));
            let declared = DIFFERENCES.iter().find(|d| d.chapter == *chapter && d.object == object);
            match declared {
                _ if a == b => equal += 1,
                Some(difference) => {
                    occurred.insert((difference.chapter, difference.object));
                    println!(
                        "        differs as intended ({}): {chapter}, {object}: {}",
                        difference.section, difference.why
                    );
                }
                None => wrong.push(format!("{chapter}, {object}:\n  built-in {a:#?}\n  dragoman {b:#?}")),
            }
        }
    }
    for difference in DIFFERENCES {
        if !occurred.contains(&(difference.chapter, difference.object)) {
            wrong.push(format!(
                "{}, {}: the declared difference does not occur",
                difference.chapter, difference.object
            ));
        }
    }
    ensure!(wrong.is_empty(), "histories differ:\n{}", wrong.join("\n"));
    Ok(equal)
}
