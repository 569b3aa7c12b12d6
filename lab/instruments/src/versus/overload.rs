//! The built-in claim controller and Dragoman while their API server is slow, throttles, or is half dead.
//!
//! Each talks to the API server through a proxy of its own with the same fault. Everything else of the
//! cluster does without. Times are reported; clearly more requests than the built-in controller sends are an error.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use http::StatusCode;

use super::figures::{self, Column};
use super::watch::Clock;
use dragoman_e2e::client::CLAIMS;
use dragoman_e2e::control_plane::{Garbage, Process, Shape};
use dragoman_e2e::dragoman::Dragoman;
use dragoman_e2e::objects::Pod;
use dragoman_e2e::proxy::{Harm, Proxy};
use dragoman_e2e::world::{Bench, World};

const NODES: usize = 20;
const DEVICES: usize = 32;
/// The longest measurement.
const LONGEST: Duration = Duration::from_mins(2);
/// Chance decides which requests a fault meets.
const SLACK: f64 = 1.15;
/// Requests that a process sends for itself while it measures: its Lease, its watches, its rights.
const OWN: f64 = 60.0;

/// The faults, by name.
fn faults() -> [(&'static str, Harm); 3] {
    [
        ("slow: 500 ms for each request", Harm::Delay { by: Duration::from_millis(500) }),
        (
            "throttled: every second request is a 429",
            Harm::RefuseEvery { every: 2, code: StatusCode::TOO_MANY_REQUESTS },
        ),
        (
            "half dead: every second request is a 503",
            Harm::RefuseEvery { every: 2, code: StatusCode::SERVICE_UNAVAILABLE },
        ),
    ]
}

/// Measures `pods` lives of Pods for each fault and side, and prints a table for each fault.
pub(crate) async fn run(bench: &Bench, pods: usize) -> anyhow::Result<()> {
    let mut more = Vec::new();
    for (fault, harm) in faults() {
        println!("{fault}");
        let (theirs, built_in) = measure(bench, "built-in, 5000 qps", &harm, pods).await.context(fault)?;
        let (ours, dragoman) = measure(bench, "dragoman", &harm, pods).await.context(fault)?;
        println!("{}", figures::table(&[built_in, dragoman]));
        if ours > theirs * SLACK {
            more.push(format!("{fault}: {ours:.2} requests a life, the built-in controller {theirs:.2}"));
        }
    }
    ensure!(more.is_empty(), "more requests than the built-in controller: {}", more.join("; "));
    Ok(())
}

/// The claim controller of a side.
enum Controller {
    BuiltIn(Process),
    Dragoman(Dragoman),
}

/// Returns the requests for a life, with the figures.
async fn measure(
    bench: &Bench,
    side: &'static str,
    harm: &Harm,
    pods: usize,
) -> anyhow::Result<(f64, Column)> {
    let is_ours = side == "dragoman";
    let shape = Shape { built_in_qps: Some(5000), garbage: Garbage::AsShipped, ..Shape::default() };
    let directory = format!("overload-{}", if is_ours { side } else { "built-in" });
    let world = World::start(bench, &directory, shape, NODES, DEVICES).await?;
    let user = if is_ours { "operator" } else { "admin" };
    let proxy = Proxy::start(world.plane.client(user).await?.kube).await?;
    let kubeconfig = proxy.kubeconfig(&world.directory)?;
    let controller = if is_ours {
        Controller::Dragoman(
            world.dragoman_as(kubeconfig, "own", &["--controllers", "claim_lifecycle"]).await?,
        )
    } else {
        Controller::BuiltIn(world.plane.claim_controller(&kubeconfig)?)
    };
    let ns = world.namespace("lives").await?;
    // One life shows that the side works before the fault begins.
    world.pod(&ns, &Pod::new("first").with_template("gpu", "one").reaped()).await?;
    let none = async || world.client.list(CLAIMS, &ns).await.is_ok_and(|claims| claims.is_empty());
    world.rest(&ns).await?;
    dragoman_e2e::wait::until("the first life is over", none).await?;
    let clock = Clock::start(world.client.kube.clone(), &ns);
    proxy.harm(Some(harm.clone()));
    let began = Instant::now();
    super::create(
        &world,
        &ns,
        (0..pods).map(|i| Pod::new(&format!("pod-{i}")).with_template("gpu", "one").reaped()),
    )
    .await?;
    // A side that keeps failing is not waited for.
    while clock.lives() < pods && began.elapsed() < LONGEST {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (took, requests, over) = (began.elapsed(), proxy.requests(), clock.lives());
    let mut column = Column::new(side);
    #[expect(clippy::cast_precision_loss, reason = "counts of Pods and requests")]
    let (lives, left, sent) = (over as f64, (pods - over) as f64, requests as f64);
    column.figure("lives per second", lives / took.as_secs_f64(), 1);
    column.figure("lives not over in two minutes", left, 0);
    column.figure("requests per life", sent / lives, 2);
    column.latencies(&clock);
    proxy.harm(None);
    match controller {
        Controller::BuiltIn(process) => process.kill().await?,
        Controller::Dragoman(dragoman) => drop(dragoman.stop().await?),
    }
    world.stop().await?;
    // Only our side has a Lease.
    let own = if is_ours { OWN } else { 0.0 };
    Ok(((sent - own) / lives, column))
}
