//! The built-in claim controller and Dragoman while their API server is slow, throttles, or is half dead.
//!
//! Each talks to the API server through a proxy of its own with the same fault. Everything else of the
//! cluster does without. Times are reported; more requests than the built-in controller sends are an error.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use http::StatusCode;

use super::figures::{self, Column};
use super::watch::Clock;
use crate::client::CLAIMS;
use crate::control_plane::{Process, Shape};
use crate::dragoman::Dragoman;
use crate::objects::Pod;
use crate::proxy::{Harm, Proxy};
use crate::world::{Bench, World};

const NODES: usize = 20;
const DEVICES: usize = 32;

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
        if ours > theirs {
            more.push(format!("{fault}: {ours} requests, the built-in controller {theirs}"));
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

/// Returns the number of requests with the figures.
async fn measure(
    bench: &Bench,
    side: &'static str,
    harm: &Harm,
    pods: usize,
) -> anyhow::Result<(usize, Column)> {
    let is_ours = side == "dragoman";
    let shape = Shape { built_in_qps: Some(5000), ..Shape::default() };
    let directory = format!("overload-{}", if is_ours { side } else { "built-in" });
    let world = World::start(bench, &directory, shape, NODES, DEVICES).await?;
    let user = if is_ours { "operator" } else { "admin" };
    let proxy = Proxy::start(world.plane.client(user).await?.kube).await?;
    let kubeconfig = proxy.kubeconfig(&world.directory)?;
    let controller = if is_ours {
        Controller::Dragoman(world.dragoman_as(kubeconfig, "own", &["--controllers", "claim_lifecycle"]).await?)
    } else {
        Controller::BuiltIn(world.plane.claim_controller(&kubeconfig)?)
    };
    let ns = world.namespace("lives").await?;
    // One life shows that the side works before the fault begins.
    world.pod(&ns, &Pod::new("first").with_template("gpu", "one").reaped()).await?;
    let none = async || world.client.list(CLAIMS, &ns).await.is_ok_and(|claims| claims.is_empty());
    world.rest(&ns).await?;
    crate::wait::until("the first life is over", Duration::from_mins(1), none).await?;
    let clock = Clock::start(world.client.kube.clone(), &ns);
    proxy.harm(Some(harm.clone()));
    let began = Instant::now();
    super::create(
        &world,
        &ns,
        (0..pods).map(|i| Pod::new(&format!("pod-{i}")).with_template("gpu", "one").reaped()),
    )
    .await?;
    let over = async || clock.lives() == pods;
    crate::wait::until("every life is over", Duration::from_mins(15), over).await?;
    let (took, requests) = (began.elapsed(), proxy.requests());
    let mut column = Column::new(side);
    #[expect(clippy::cast_precision_loss, reason = "counts of Pods and requests")]
    let (lives, sent) = (pods as f64, requests as f64);
    column.figure("lives per second", lives / took.as_secs_f64(), 1);
    column.figure("requests per life", sent / lives, 2);
    column.latencies(&clock);
    proxy.harm(None);
    match controller {
        Controller::BuiltIn(process) => process.kill().await?,
        Controller::Dragoman(dragoman) => drop(dragoman.stop().await?),
    }
    world.stop().await?;
    Ok((requests, column))
}
