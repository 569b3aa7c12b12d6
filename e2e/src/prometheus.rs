//! A real Prometheus that scrapes the processes of a scenario and evaluates the shipped rules.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use dragoman_judge::rules::in_seconds;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::client::plain_http;
use crate::control_plane::{Process, free_port};
use crate::{go, wait};

/// A running Prometheus.
pub(crate) struct Prometheus {
    process: Process,
    port: u16,
    directory: PathBuf,
    /// The name of each target, and its port.
    targets: Mutex<Vec<(String, u16)>>,
}

/// Percent encoding of a query for a URL.
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Prometheus {
    /// Starts a Prometheus without targets.
    pub(crate) async fn start(repository: &Path, directory: &Path) -> anyhow::Result<Self> {
        let program = go::tools(repository, "prometheus").await?.join("prometheus");
        let directory = directory.join("prometheus");
        std::fs::create_dir_all(&directory).context("prometheus")?;
        let rules =
            std::fs::read_to_string(repository.join("config/monitoring/rules.yaml")).context("rules")?;
        std::fs::write(directory.join("rules.yaml"), in_seconds(&rules)?).context("rules")?;
        configure(&directory, &[])?;
        let port = free_port()?;
        let arguments = [
            format!("--config.file={}", directory.join("prometheus.json").display()),
            format!("--storage.tsdb.path={}", directory.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--web.enable-lifecycle".to_owned(),
        ];
        let process = Process::spawn(&program, "prometheus", &arguments, &directory)?;
        let prometheus = Self { process, port, directory, targets: Mutex::default() };
        let ready = async || matches!(prometheus.request("GET", "/-/ready").await, Ok((200, _)));
        let outcome = wait::until("Prometheus is ready", ready).await;
        outcome.with_context(|| prometheus.process.output())?;
        Ok(prometheus)
    }

    /// Scrapes a process from now on, under a name that stays when the process starts anew elsewhere.
    pub(crate) async fn scrape(&self, name: &str, port: u16) -> anyhow::Result<()> {
        let targets = {
            let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
            targets.retain(|(known, _)| known != name);
            targets.push((name.to_owned(), port));
            targets.clone()
        };
        configure(&self.directory, &targets)?;
        let (code, text) = self.request("POST", "/-/reload").await?;
        ensure!(code == 200, "{text}");
        // What is counted before the first look is no increase.
        let seen = format!("up{{instance={name:?}}} == 1");
        wait::value(&format!("{name} is scraped"), async || {
            Ok((!self.query(&seen).await?.is_empty()).then_some(()))
        })
        .await
    }

    /// The result of a query: a list of series with their values.
    pub(crate) async fn query(&self, query: &str) -> anyhow::Result<Vec<Value>> {
        let (_, text) = self.request("GET", &format!("/api/v1/query?query={}", encoded(query))).await?;
        let mut answer: Value = serde_json::from_str(&text)?;
        ensure!(answer["status"] == "success", "{query}: {text}");
        match answer["data"]["result"].take() {
            Value::Array(series) => Ok(series),
            other => anyhow::bail!("{query}: {other}"),
        }
    }

    /// Whether a query had a result at any time of these seconds until now.
    pub(crate) async fn had(&self, query: &str, seconds: i64) -> anyhow::Result<bool> {
        let now = jiff::Timestamp::now().as_second();
        let range = format!("start={}&end={now}&step=2", now - seconds);
        let path = format!("/api/v1/query_range?query={}&{range}", encoded(query));
        let (_, text) = self.request("GET", &path).await?;
        let answer: Value = serde_json::from_str(&text)?;
        ensure!(answer["status"] == "success", "{query}: {text}");
        Ok(answer["data"]["result"].as_array().is_some_and(|series| !series.is_empty()))
    }

    /// The names of the alerts that fire.
    pub(crate) async fn firing(&self) -> anyhow::Result<Vec<String>> {
        let (_, text) = self.request("GET", "/api/v1/alerts").await?;
        let answer: Value = serde_json::from_str(&text)?;
        let alerts = answer["data"]["alerts"].as_array().context("alerts")?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        Ok(firing.filter_map(|alert| alert["labels"]["alertname"].as_str().map(str::to_owned)).collect())
    }

    /// The port of its API.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Stops it.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.process.stop().await.map(drop)
    }

    async fn request(&self, method: &str, path: &str) -> anyhow::Result<(u16, String)> {
        plain_http(self.port, http::Request::builder().method(method).uri(path).body(String::new())?).await
    }
}

/// Writes the configuration; JSON is YAML.
fn configure(directory: &Path, targets: &[(String, u16)]) -> anyhow::Result<()> {
    let target = |(name, port): &(String, u16)| json!({"targets": [format!("127.0.0.1:{port}")], "labels": {"instance": name}});
    let targets: Vec<Value> = targets.iter().map(target).collect();
    let config = json!({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [directory.join("rules.yaml").display().to_string()],
        "scrape_configs": [{"job_name": "dragoman", "static_configs": targets}],
    });
    std::fs::write(directory.join("prometheus.json"), config.to_string()).context("configuration")
}
