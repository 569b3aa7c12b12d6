//! Compares the answers of simcluster and of a real kube-apiserver to the same questions.

mod answer;
mod questions;

use anyhow::{Context as _, bail, ensure};
use dragoman_simcluster::{ApiHandle, ApiServer, Clock, Profile, User};
use futures::AsyncBufReadExt as _;
use http::Request;
use serde_json::{Value, json};

use self::answer::{Known, Normal};
use dragoman_e2e::control_plane::{Backend, ControlPlane, Release, Scheduling, Shape};
use dragoman_e2e::wait;
use dragoman_e2e::world::Bench;

/// A question. In paths and bodies, `{{label.field}}` stands for a metadata field of the answer to the
/// earlier question with this label.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// The subject; later questions refer to the answer by it.
    label: String,
    method: &'static str,
    path: String,
    content_type: &'static str,
    accept: &'static str,
    body: Value,
    /// The user of the request, if it is not an administrator.
    user: Option<&'static str>,
    /// JSON pointers to fields that may differ.
    free: Vec<&'static str>,
    /// The awaited answer: the question is repeated until controllers have brought it about.
    until: Option<Until>,
}

/// The method of a step that is no request: both sides forget all history, as a compaction of etcd does.
const FORGET: &str = "FORGET";

/// The awaited answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// An answer with this code.
    Code(u16),
    /// An answer with a value at this JSON pointer.
    Has(&'static str),
    /// An answer with the object, but without a value at this JSON pointer.
    Lacks(&'static str),
}

/// Asks both sides, and requires the same answers. Returns the number of questions.
pub(crate) async fn run(bench: &Bench, filter: &str) -> anyhow::Result<usize> {
    let server = ApiServer::new(Profile::default(), Clock::Real, 1);
    let collector = tokio::spawn(server.clone().collect());
    let directory = bench.output.join("conformance");
    if directory.exists() {
        std::fs::remove_dir_all(&directory).context("old logs")?;
    }
    // The release that simcluster simulates by default.
    let release = Release::V1_36;
    let shape = Shape { release, scheduler: Scheduling::Absent, ..Shape::default() };
    let mut plane = ControlPlane::start(Backend::Real, &bench.repository, &directory, shape).await?;
    let outcome = compare(&server, &mut plane, filter).await;
    collector.abort();
    plane.stop().await?;
    outcome
}

async fn compare(server: &ApiServer, plane: &mut ControlPlane, filter: &str) -> anyhow::Result<usize> {
    let sim = kube::Client::new(ApiHandle::new(server.clone(), User::admin()), "default");
    let real = plane.client("admin").await?.kube;
    let (mut asked, mut different) = (0, Vec::new());
    for chapter in questions::chapters() {
        if !chapter.name.contains(filter) {
            continue;
        }
        let (mut sim_knows, mut real_knows) = (Known::default(), Known::default());
        for question in &chapter.questions {
            if question.method == FORGET {
                server.compact();
                plane.forget_history().await?;
                continue;
            }
            let ours = settled(&sim, question, &mut sim_knows).await.context("simcluster")?;
            let theirs = settled(&real, question, &mut real_knows).await.context("kube-apiserver")?;
            asked += 1;
            if let Some(difference) = ours.difference(&theirs, &question.free) {
                println!("differs {}/{}: {difference}", chapter.name, question.label);
                different.push(format!("{}/{}", chapter.name, question.label));
            }
        }
    }
    ensure!(asked > 0, "no question matches");
    ensure!(different.is_empty(), "{} of {asked} answers differ", different.len());
    Ok(asked)
}

/// Asks a question, repeatedly if an answer is awaited.
async fn settled(client: &kube::Client, question: &Question, known: &mut Known) -> anyhow::Result<Normal> {
    let Some(until) = question.until else { return ask(client, question, known).await };
    let answer = async || {
        let answer = ask(client, question, known).await?;
        Ok(answer.is(until).then_some(answer))
    };
    wait::value(&question.label, answer).await
}

async fn ask(client: &kube::Client, question: &Question, known: &mut Known) -> anyhow::Result<Normal> {
    let path = known.fill(&question.path)?;
    let body = if question.body.is_null() {
        Vec::new()
    } else {
        known.fill(&question.body.to_string())?.into_bytes()
    };
    let mut request =
        Request::builder().method(question.method).uri(&path).header("User-Agent", "conformance/1");
    if !body.is_empty() {
        request = request.header("Content-Type", question.content_type);
    }
    if let Some(user) = question.user {
        request = request.header("Impersonate-User", user);
    }
    let request = request.header("Accept", question.accept).body(body)?;
    if path.contains("watch=") {
        return watch(client, request, known, &question.label).await;
    }
    let response =
        client.send(request.map(kube::client::Body::from)).await.with_context(|| question.label.clone())?;
    let code = response.status().as_u16();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await?.to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    known.learn(&question.label, &body);
    Ok(known.normal(code, body))
}

/// Returns all events until the watch ends as a list, without bookmarks.
async fn watch(
    client: &kube::Client,
    request: Request<Vec<u8>>,
    known: &mut Known,
    label: &str,
) -> anyhow::Result<Normal> {
    let lines = match client.request_stream(request).await {
        Ok(lines) => lines,
        Err(kube::Error::Api(status)) => {
            return Ok(known.normal(status.code, serde_json::to_value(&status)?));
        }
        Err(error) => bail!("{label}: {error}"),
    };
    let mut lines = std::pin::pin!(lines);
    let (mut events, mut line) = (Vec::new(), String::new());
    while lines.read_line(&mut line).await.unwrap_or_default() > 0 {
        let event: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        if event["type"] != "BOOKMARK" {
            events.push(event);
        }
        line.clear();
    }
    Ok(known.normal(200, json!(events)))
}
