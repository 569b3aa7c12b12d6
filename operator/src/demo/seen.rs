//! Output of the command line tools about the simulated cluster: `dragoman account` of a node,
//! `kubectl dra explain` of a Pod.

use dragoman_accounting::cluster::Rules;
use dragoman_report::facts::Facts;
use dragoman_report::manifests::Found;
use dragoman_report::{Filter, Keep, Objects, Report, explain, render};
use dragoman_simcluster::ApiServer;
use serde_json::Value;
use serde_json::value::RawValue;

use super::cluster::{CLAIMS, NAMESPACE};

/// The kinds that answers are made of, as simcluster names them.
const KINDS: [(&str, &str); 8] = [
    ("Node", "nodes"),
    ("Pod", "pods"),
    ("ResourceClaim", "resourceclaims.resource.k8s.io"),
    ("ResourceClaimTemplate", "resourceclaimtemplates.resource.k8s.io"),
    ("ResourceSlice", "resourceslices.resource.k8s.io"),
    ("DeviceClass", "deviceclasses.resource.k8s.io"),
    ("DeviceFootprint", "devicefootprints.dragoman.dev"),
    ("Event", "events"),
];

fn objects(server: &ApiServer) -> impl Iterator<Item = (&'static str, String)> {
    KINDS.into_iter().flat_map(|(kind, resource)| {
        server.all(resource).into_iter().map(move |object| (kind, object.to_string()))
    })
}

/// The ledger of a node.
///
/// # Errors
/// An object of the cluster does not decode.
pub(super) fn ledger(server: &ApiServer, node: &str) -> anyhow::Result<String> {
    let mut all = Objects::new(Keep::Ledgers);
    for (kind, text) in objects(server) {
        all.take(Found::item(kind, &text))?;
    }
    let filter = Filter { nodes: vec![node.to_owned()], ..Filter::default() };
    Ok(render(&Report::of(all, Rules::default(), &filter), true))
}

/// Why a Pod waits.
///
/// # Errors
/// An object of the cluster is no JSON.
pub(super) fn explained(server: &ApiServer, pod: &str) -> anyhow::Result<String> {
    let mut facts = Facts::with_costs();
    for (kind, text) in objects(server) {
        facts.take(kind, &RawValue::from_string(text)?);
    }
    Ok(explain::pod::explain(facts, NAMESPACE, pod, server.now()).in_words())
}

/// A Pod of the demo that waits because a node has too little left, and has no devices yet.
pub(super) fn waiting_pod(server: &ApiServer) -> Option<String> {
    let claims = server.all(CLAIMS);
    let lacks = |pod: &Value| {
        let mut of = claims
            .iter()
            .filter(|claim| claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]);
        of.any(|claim| claim["status"]["allocation"].is_null())
    };
    let waits_for_room = |pod: &Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        lacks(pod)
            && conditions.any(|condition| {
                condition["message"].as_str().is_some_and(|text| text.contains("is missing"))
            })
    };
    let pods = server.all("pods");
    let mut waiting =
        pods.iter().filter(|pod| pod["metadata"]["namespace"] == NAMESPACE && waits_for_room(pod));
    waiting.next().and_then(|pod| pod["metadata"]["name"].as_str().map(str::to_owned))
}
