use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode, header};
use kube::client::Body;
use prometheus_client::registry::Registry;

use super::decide::SHORTEST_PAUSE;
use super::*;
use crate::api::Limits;
use crate::metrics::ClientMetrics;

fn seen(holder: &str, changed: Instant) -> Seen {
    Seen { holder: holder.to_owned(), lease: Duration::from_secs(15), changed }
}

fn view(seen: Option<&Seen>, renewed: Option<Instant>) -> View<'_> {
    View { me: "me", seen, renewed, fitness: Fitness::FIT, barred_at: None }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn a_rival_is_waited_for_from_when_we_saw_it_change() {
    let now = Instant::now();
    let periods = Periods::default();
    let rival = seen("other", now);
    let at = |after| decide(view(Some(&rival), None), now + secs(after), periods);
    assert_eq!(at(0), Decision::Wait(periods.retry));
    assert_eq!(at(14), Decision::Wait(secs(1)));
    assert_eq!(at(15), Decision::Acquire);
    assert_eq!(decide(view(None, None), now, periods), Decision::Acquire);
    assert_eq!(decide(view(Some(&seen("", now)), None), now, periods), Decision::Acquire);
}

#[test]
fn a_slow_answer_leaves_time_for_the_next_renewal() {
    let begun = Instant::now();
    let periods = Periods::default();
    let after = |millis| pause(Some(begun), begun + Duration::from_millis(millis), periods);
    assert_eq!(after(10), periods.retry);
    assert_eq!(after(8_000), secs(1));
    assert_eq!(after(11_000), SHORTEST_PAUSE);
    assert_eq!(pause(None, begun, periods), periods.retry);
    // Whatever an answer took, the next attempt is still a renewal.
    for millis in (0..9_800).step_by(100) {
        let now = begun + Duration::from_millis(millis) + after(millis);
        assert_eq!(decide(view(Some(&seen("me", begun)), Some(begun)), now, periods), Decision::Renew);
    }
}

#[test]
fn a_leader_ends_before_its_lease_does() {
    let now = Instant::now();
    let periods = Periods::default();
    assert!(periods.renew < periods.lease);
    let mine = seen("me", now);
    let at = |after| decide(view(Some(&mine), Some(now)), now + secs(after), periods);
    assert_eq!(at(9), Decision::Renew);
    assert_eq!(at(10), Decision::Lost);
    assert_eq!(decide(view(Some(&seen("other", now)), Some(now)), now, periods), Decision::Lost);
    assert_eq!(decide(view(None, Some(now)), now, periods), Decision::Lost);
}

#[test]
fn a_candidate_stands_only_with_complete_and_recent_indexes() {
    let began = Instant::now();
    let periods = Periods::default();
    let stands = |fitness, after| {
        let decision = decide(View { fitness, ..view(None, None) }, began + secs(after), periods);
        assert!(matches!(decision, Decision::Acquire | Decision::Wait(_)), "{decision:?}");
        decision == Decision::Acquire
    };
    assert!(stands(Fitness::FIT, 0));
    assert!(!stands(Fitness { complete: false, ..Fitness::FIT }, 0));
    let blind = Fitness { blind: Some(began), ..Fitness::FIT };
    assert!(stands(blind, 2), "a watch that is being resumed");
    assert!(!stands(blind, 5));
}

#[test]
fn a_leader_that_is_blind_or_barred_for_half_a_minute_gives_up() {
    let began = Instant::now();
    let periods = Periods::default();
    let blind = Fitness { blind: Some(began), ..Fitness::FIT };
    let barred = Fitness { barred: Some(began), ..Fitness::FIT };
    for (fitness, reason) in [(blind, Reason::Blind), (barred, Reason::Barred)] {
        let at = |after| {
            let now = began + secs(after);
            let mine = seen("me", now);
            decide(View { fitness, ..view(Some(&mine), Some(now)) }, now, periods)
        };
        assert_eq!(at(0), Decision::Renew);
        assert_eq!(at(29), Decision::Renew);
        assert_eq!(at(30), Decision::Resign(reason));
    }
}

/// Replicas share a service account: what one may not do, the other may not do either.
#[test]
fn a_right_that_every_replica_lacks_does_not_send_the_lease_round() {
    let began = Instant::now();
    let periods = Periods::default();
    let fitness = Fitness { barred: Some(began), ..Fitness::FIT };
    let at = |renewed: bool, after| {
        let now = began + secs(after);
        let seen = seen(if renewed { "me" } else { "" }, now);
        let renewed = renewed.then_some(now);
        let view = View { fitness, barred_at: Some(began), ..view(Some(&seen), renewed) };
        decide(view, now, periods)
    };
    assert_eq!(at(false, 29), Decision::Wait(periods.retry), "the others go first");
    assert_eq!(at(false, 30), Decision::Acquire);
    assert_eq!(at(true, 599), Decision::Renew);
    assert_eq!(at(true, 600), Decision::Resign(Reason::Barred));
}

/// Reaction of the server to an update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reply {
    Done,
    /// Done, but the reply is lost.
    Lost,
    Silence,
    Throttle,
}

/// A server with one Lease.
#[derive(Default)]
struct Server {
    lease: Option<Value>,
    version: u64,
    updates: usize,
    verbs: Vec<Method>,
}

impl Server {
    fn holder(&self) -> &str {
        self.lease.as_ref().map_or("", |lease| lease["spec"]["holderIdentity"].as_str().unwrap_or_default())
    }

    fn store(&mut self, mut object: Value) -> (u16, Value) {
        self.version += 1;
        object["metadata"]["uid"] = json!("u");
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(object.clone());
        (200, object)
    }

    fn answer(&mut self, method: &Method, body: &[u8]) -> (u16, Value) {
        self.verbs.push(method.clone());
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        match (method.as_str(), self.lease.clone()) {
            ("GET", None) => {
                (404, json!({"reason": "NotFound", "details": {"name": "dragoman", "kind": "leases"}}))
            }
            ("GET", Some(lease)) => (200, lease),
            ("POST", None) => self.store(sent),
            ("POST", Some(_)) => (409, json!({"reason": "AlreadyExists"})),
            ("PUT", Some(lease)) => {
                let same =
                    ["uid", "resourceVersion"].iter().all(|f| sent["metadata"][f] == lease["metadata"][f]);
                if same { self.store(sent) } else { (409, json!({"reason": "Conflict"})) }
            }
            _ => (405, json!({})),
        }
    }
}

/// A client of `server`, whose n-th update meets `script(n)`.
fn client(server: &Arc<Mutex<Server>>, script: fn(usize) -> Reply) -> Api {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.expect("body");
            let (reply, (code, answer)) = {
                let mut server = server.lock().unwrap();
                let update = head.method == Method::PUT;
                server.updates += usize::from(update);
                let reply = if update { script(server.updates) } else { Reply::Done };
                let answer = match reply {
                    Reply::Done | Reply::Lost => server.answer(&head.method, &body),
                    Reply::Silence | Reply::Throttle => (429, json!({})),
                };
                (reply, answer)
            };
            if matches!(reply, Reply::Lost | Reply::Silence) {
                std::future::pending::<()>().await;
            }
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).expect("code");
            response.headers_mut().insert(header::RETRY_AFTER, 60.into());
            Ok::<_, std::io::Error>(response)
        }
    });
    let metrics = ClientMetrics::register(&mut Registry::default(), "server");
    Api::new(kube::Client::new(service, "default"), Limits::lease(), metrics)
}

/// A candidate in its own task.
struct Running {
    leadership: Leadership,
    fitness: Arc<Mutex<Fitness>>,
    task: tokio::task::JoinHandle<Result<(), Ended>>,
    stop: watch::Sender<bool>,
}

fn stand(
    identity: &str,
    server: &Arc<Mutex<Server>>,
    script: fn(usize) -> Reply,
    fitness: Fitness,
) -> Running {
    let fitness = Arc::new(Mutex::new(fitness));
    let now = Arc::clone(&fitness);
    let candidate = Candidate {
        api: client(server, script),
        metrics: MachineryMetrics::default(),
        namespace: "kube-system".to_owned(),
        name: "dragoman",
        identity: identity.to_owned(),
        periods: Periods::default(),
        fitness: Box::new(move || *now.lock().unwrap()),
    };
    let leadership = Leadership::default();
    let theirs = leadership.clone();
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(async move { candidate.run(&theirs, stopped).await });
    Running { leadership, fitness, task, stop }
}

/// Polls at moments that are not those of the candidates.
async fn until(limit: Duration, mut condition: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < limit, "not within {limit:?}");
        sleep(Duration::from_millis(37)).await;
    }
    began.elapsed()
}

/// Leads for `time` without a break.
async fn leads_for(running: &Running, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        assert!(running.leadership.holds(), "it ceased to lead after {:?}", began.elapsed());
        sleep(Duration::from_millis(37)).await;
    }
}

async fn one_reply_in_four_costs_nothing(script: fn(usize) -> Reply) {
    let server = Arc::default();
    let leader = stand("me", &server, script, Fitness::FIT);
    until(secs(3), || leader.leadership.holds()).await;
    leads_for(&leader, secs(120)).await;
    assert!(!leader.task.is_finished());
    assert!(server.lock().unwrap().updates > 20);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_never_costs_the_lease() {
    one_reply_in_four_costs_nothing(|n| if n % 4 == 0 { Reply::Silence } else { Reply::Done }).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_never_costs_the_lease() {
    one_reply_in_four_costs_nothing(|n| if n % 4 == 0 { Reply::Lost } else { Reply::Done }).await;
}

#[tokio::test(start_paused = true)]
async fn a_429_does_not_hold_renewals_back() {
    one_reply_in_four_costs_nothing(|n| if n % 4 == 0 { Reply::Throttle } else { Reply::Done }).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_its_lease_does() {
    let server = Arc::default();
    let leader = stand("me", &server, |n| if n < 3 { Reply::Done } else { Reply::Silence }, Fitness::FIT);
    until(secs(3), || leader.leadership.holds()).await;
    until(secs(16), || !leader.leadership.holds()).await;
    until(secs(3), || leader.task.is_finished()).await;
    assert!(matches!(leader.task.await.expect("task"), Err(Ended::Lost(_))));
    assert_eq!(server.lock().unwrap().holder(), "me");
}

/// The verbs that have the API server's priority for leader election.
#[tokio::test(start_paused = true)]
async fn the_lease_is_updated_and_fields_of_others_survive() {
    let server = Arc::new(Mutex::new(Server::default()));
    server.lock().unwrap().store(json!({
        "metadata": {"name": "dragoman", "namespace": "kube-system", "labels": {"a": "b"}},
        "spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion", "leaseTransitions": 4},
    }));
    let leader = stand("me", &server, |_| Reply::Done, Fitness::FIT);
    until(secs(3), || leader.leadership.holds()).await;
    leads_for(&leader, secs(10)).await;
    leader.stop.send_replace(true);
    leader.task.await.expect("task").expect("an orderly end");
    let server = server.lock().unwrap();
    let lease = server.lease.as_ref().expect("lease");
    assert_eq!(lease["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(lease["spec"]["strategy"], "OldestEmulationVersion");
    assert_eq!(lease["spec"]["leaseTransitions"], 5);
    assert_eq!(server.holder(), "");
    assert!(server.verbs.iter().all(|verb| [Method::GET, Method::PUT].contains(verb)), "{:?}", server.verbs);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_years_is_waited_for_ten_minutes() {
    let server = Arc::new(Mutex::new(Server::default()));
    server.lock().unwrap().store(json!({
        "metadata": {"name": "dragoman", "namespace": "kube-system"},
        "spec": {"holderIdentity": "gone", "leaseDurationSeconds": i32::MAX},
    }));
    let leader = stand("me", &server, |_| Reply::Done, Fitness::FIT);
    let waited = until(secs(610), || leader.leadership.holds()).await;
    assert!(waited >= secs(600), "it has not run out before: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn the_standby_that_sees_leads_instead_of_the_replica_that_does_not() {
    let server = Arc::default();
    let cold = stand("cold", &server, |_| Reply::Done, Fitness { complete: false, ..Fitness::FIT });
    sleep(secs(20)).await;
    assert_eq!(server.lock().unwrap().holder(), "");
    let warm = stand("warm", &server, |_| Reply::Done, Fitness::FIT);
    until(secs(3), || warm.leadership.holds()).await;
    assert!(!cold.leadership.holds());
}

#[tokio::test(start_paused = true)]
async fn a_blind_leader_hands_over_once_its_last_write_has_ended() {
    let server = Arc::default();
    let first = stand("first", &server, |_| Reply::Done, Fitness::FIT);
    until(secs(3), || first.leadership.holds()).await;
    let second = stand("second", &server, |_| Reply::Done, Fitness::FIT);
    let at_work = first.leadership.work();
    first.fitness.lock().unwrap().blind = Some(Instant::now());
    let led = until(secs(40), || !first.leadership.holds()).await;
    assert!(led >= PATIENCE, "{led:?}");
    assert_eq!(server.lock().unwrap().holder(), "first", "its last write is on its way");
    sleep(secs(1)).await;
    drop(at_work);
    until(secs(3), || second.leadership.holds()).await;
    // The first stands again, sees again, and takes over when the second goes.
    first.fitness.lock().unwrap().blind = None;
    leads_for(&second, secs(60)).await;
    assert!(!first.task.is_finished() && !first.leadership.holds());
    second.stop.send_replace(true);
    until(secs(4), || first.leadership.holds()).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_does_not_keep_the_lease_beyond_its_time() {
    let server = Arc::default();
    let first = stand("first", &server, |_| Reply::Done, Fitness::FIT);
    until(secs(3), || first.leadership.holds()).await;
    let second = stand("second", &server, |_| Reply::Done, Fitness::FIT);
    let _at_work = first.leadership.work();
    first.fitness.lock().unwrap().barred = Some(Instant::now());
    until(secs(40), || !first.leadership.holds()).await;
    until(Periods::default().lease, || second.leadership.holds()).await;
}
