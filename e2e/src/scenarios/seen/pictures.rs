//! The dashboards in a real browser, with real panels: pictures for people to look at.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::control_plane::{Shape, free_port};
use crate::objects::Pod;
use crate::prometheus::Prometheus;
use crate::scenarios::packages::done;
use crate::scenarios::{NotRun, Standalone, gates, standalone};
use crate::world::{Bench, World};
use crate::{go, wait};

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(dashboards_are_drawn_in_a_browser)]
}

/// The files of the page that draws.
const SOURCES: [&str; 4] = ["package.json", "index.html", "main.jsx", "vite.config.js"];
/// The time that the pictures show.
const SECONDS: i64 = 120;

/// Grafana itself cannot be had here. The page draws its JSON with the panels of Perses; each panel has to be drawn without an
/// error. The pictures stay in the output.
async fn dashboards_are_drawn_in_a_browser(bench: &Bench) -> anyhow::Result<()> {
    let (page, browser) = (page(bench).await?, browser().await?);
    let world = gates::gated(bench, "seen-pictures", Shape::default(), 2).await?;
    let operator = world.dragoman("own", &[&gates::FLAGS[..], &["--metrics-per-node"]].concat()).await?;
    let allocator = world.allocator(&[]).await?;
    let prometheus = Prometheus::start(&bench.repository, &world.directory).await?;
    prometheus.scrape("operator", operator.admin_port()).await?;
    prometheus.scrape("allocator", allocator.admin_port()).await?;
    lives(&world, &prometheus).await?;
    let port = free_port()?;
    let mut server = serve(&page, prometheus.port(), port)?;
    let address = format!("http://127.0.0.1:{port}");
    let up = async || {
        crate::client::plain_http(port, http::Request::get("/").body(String::new()).unwrap_or_default())
            .await
            .is_ok()
    };
    wait::until("the page is served", up).await?;
    for name in ["operations", "devices"] {
        let panels = dashboard(bench, name)?;
        let without = without_data(&prometheus, &panels).await?;
        let url = format!("{address}/?dashboard={name}&minutes={}", SECONDS / 60);
        draw(&browser, &url, &world.directory.join(format!("{name}.png")), &panels, without).await?;
    }
    server.kill().await?;
    prometheus.stop().await?;
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Pods with and without the gate, one after the other, and one that waits, until there is something to draw. No alert
/// fires in the end: this is what ordinary days look like.
async fn lives(world: &World, prometheus: &Prometheus) -> anyhow::Result<()> {
    let gated = gates::namespace(world, "gated", "enabled").await?;
    let plain = world.namespace("plain").await?;
    world.pod(&plain, &Pod::new("held").with_template("gpu", "one").held()).await?;
    // No driver has an owner here: Pods of both kinds at the same moment would get the same device.
    world.phase(&plain, "held", "Running").await?;
    let enough = format!("min(count_over_time(up[{SECONDS}s])) > {}", SECONDS / 2);
    let mut number = 0;
    while prometheus.query(&enough).await?.is_empty() {
        for ns in [&gated, &plain] {
            let name = format!("pod-{number}");
            world.pod(ns, &Pod::new(&name).with_template("gpu", "one")).await?;
            world.phase(ns, &name, "Succeeded").await?;
        }
        number += 1;
    }
    // The rules count seconds in place of minutes here: a pause of the machine may make one fire for a moment.
    wait::value("no alert fires", async || {
        let firing = prometheus.firing().await?;
        wait::note(|| "alerts".to_owned(), || serde_json::json!(firing));
        Ok(firing.is_empty().then_some(()))
    })
    .await?;
    println!("        {number} Pods with the gate, and as many without");
    Ok(())
}

/// Builds the page once for each content of its sources; returns its directory.
async fn page(bench: &Bench) -> anyhow::Result<PathBuf> {
    let sources = bench.repository.join("e2e/tools/perses");
    let directory = go::cache()?.join("tools").join(format!("perses-{}", go::digest(&sources, &SOURCES)?));
    let complete = directory.join("complete");
    if !complete.exists() {
        println!("building e2e/tools/perses into {}", directory.display());
        std::fs::create_dir_all(&directory).context("cache")?;
        for source in SOURCES {
            std::fs::copy(sources.join(source), directory.join(source)).context(source)?;
        }
        let at = directory.display().to_string();
        done(
            Path::new("npm"),
            &["install", "--prefix", &at, "--legacy-peer-deps", "--no-audit", "--no-fund"],
        )
        .await?;
        let vite = directory.join("node_modules/vite/bin/vite.js").display().to_string();
        done(Path::new("node"), &[&vite, "build", &at]).await?;
        std::fs::write(&complete, "").context("cache")?;
    }
    for name in ["operations", "devices"] {
        let file = format!("{name}.json");
        let shipped = bench.repository.join("config/monitoring/dashboards").join(&file);
        std::fs::copy(shipped, directory.join("dist").join(&file)).context(file)?;
    }
    Ok(directory)
}

/// The browser, installed by the name of its package where it is missing.
async fn browser() -> anyhow::Result<PathBuf> {
    let chromium = PathBuf::from("/usr/bin/chromium");
    if !chromium.exists() {
        let install = ["install", "--yes", "--no-install-recommends", "chromium"];
        let update = done(Path::new("apt-get"), &["update"]).await;
        let installed = match update {
            Ok(_) => done(Path::new("apt-get"), &install).await,
            Err(error) => Err(error),
        };
        installed.map_err(|error| NotRun(format!("there is no chromium: {error:#}")))?;
    }
    Ok(chromium)
}

fn serve(page: &Path, prometheus: u16, port: u16) -> anyhow::Result<Child> {
    Command::new("node")
        .arg(page.join("node_modules/vite/bin/vite.js"))
        .args(["preview", "--host", "127.0.0.1", "--strictPort", "--port", &port.to_string()])
        .arg(page)
        .env("PROMETHEUS", format!("http://127.0.0.1:{prometheus}"))
        .current_dir(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("node")
}

/// The panels of a dashboard, rows among them.
fn dashboard(bench: &Bench, name: &str) -> anyhow::Result<Vec<Value>> {
    let file = bench.repository.join(format!("config/monitoring/dashboards/{name}.json"));
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(&file).context("dashboard")?)?;
    Ok(dashboard["panels"].as_array().context("panels")?.clone())
}

/// The number of panels for which Prometheus has nothing: nothing of the kind happened in this cluster.
async fn without_data(prometheus: &Prometheus, panels: &[Value]) -> anyhow::Result<usize> {
    let mut empty = 0;
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let mut has = false;
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap_or_default().replace("$__rate_interval", "10s");
            has |= prometheus.had(&query, SECONDS).await?;
        }
        empty += usize::from(!has);
    }
    Ok(empty)
}

/// Draws a dashboard into a picture, and looks for panels that show an error, or nothing where there is something.
async fn draw(
    browser: &Path,
    url: &str,
    picture: &Path,
    panels: &[Value],
    without: usize,
) -> anyhow::Result<()> {
    let of = |kind: &str| panels.iter().filter(|panel| panel["type"] == kind).count();
    let shot = format!("--screenshot={}", picture.display());
    let headless =
        ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000"];
    let tall = "--window-size=1600,4200";
    done(browser, &[&headless[..], &[tall, &shot, url]].concat()).await?;
    let page = done(browser, &[&headless[..], &[tall, "--dump-dom", url]].concat()).await?;
    // A time series is drawn on a canvas, and a panel that fails has a mark.
    let (drawn, wrong) = (page.matches("<canvas").count(), page.matches("panel errors").count());
    let (panels_of_both, empty) = (of("timeseries") + of("stat"), page.matches("No data").count());
    ensure!(wrong == 0, "{url}: {wrong} panels with an error");
    ensure!(empty <= without, "{url}: {empty} panels have no data, and Prometheus has none for {without}");
    ensure!(without * 3 < panels_of_both, "{url}: {without} panels without data: too little happened");
    ensure!(
        drawn + without >= of("timeseries"),
        "{url}: {drawn} of {} time series are drawn",
        of("timeseries")
    );
    let untitled =
        panels.iter().filter_map(|panel| panel["title"].as_str()).find(|title| !page.contains(title));
    ensure!(untitled.is_none(), "{url}: {untitled:?} is not there");
    println!("        {panels_of_both} panels, {empty} without data, in {}", picture.display());
    Ok(())
}
