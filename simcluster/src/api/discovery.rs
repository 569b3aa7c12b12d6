//! Discovery: the served groups, versions and resources, and the version of the server.

use serde_json::{Value, json};

use super::request::Place;
use super::{Answer, Body, Request, State, Status, openapi};
use crate::kinds::{Resource, VERBS, verbs_of};

pub(super) fn answer(state: &State, place: &Place, request: &Request) -> Result<Answer, Status> {
    if request.method != http::Method::GET {
        return Err(Status::method_not_allowed());
    }
    let served = || state.resources.iter().filter(|resource| !state.vanished.contains(&resource.group));
    match place {
        Place::Root("api") => Ok(Answer::ok(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
        }))),
        Place::Root(_) => {
            let mut groups: Vec<&str> =
                served().map(|resource| &*resource.group).filter(|group| !group.is_empty()).collect();
            groups.sort_unstable();
            groups.dedup();
            let groups: Vec<Value> = groups.into_iter().map(|name| group(name, served())).collect();
            Ok(Answer::ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})))
        }
        Place::Group(name) if served().any(|resource| resource.group == *name) => {
            let mut group = group(name, served());
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            Ok(Answer::ok(group))
        }
        Place::Version { group, version } => {
            let of = |resource: &&std::sync::Arc<Resource>| {
                resource.group == *group && resource.version == *version
            };
            let resources: Vec<Value> =
                served().filter(of).flat_map(|resource| described(resource)).collect();
            if resources.is_empty() && served().any(|resource| resource.group == *group) {
                return Err(Status::unserved());
            }
            if resources.is_empty() {
                return Ok(Answer { code: 404, body: Body::Text("404 page not found\n".to_owned()) });
            }
            let group_version = served().find(of).map(|resource| resource.api_version());
            Ok(Answer::ok(json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
            })))
        }
        Place::Other(path) => match &**path {
            "/version" | "/version/" => Ok(Answer::ok(version(state))),
            "/healthz" | "/livez" | "/readyz" => Ok(Answer { code: 200, body: Body::Text("ok".to_owned()) }),
            "/openapi/v3" => Ok(Answer::ok(openapi::index(served()))),
            path => {
                let of = path.strip_prefix("/openapi/v3/");
                match of.and_then(|of| openapi::document(of, served(), &state.schemas)) {
                    Some(document) => Ok(Answer::ok(document)),
                    None => Err(Status::unserved()),
                }
            }
        },
        Place::Group(_) => Ok(Answer { code: 404, body: Body::Text("404 page not found\n".to_owned()) }),
        Place::Resource { .. } => Err(Status::unserved()),
    }
}

fn version(state: &State) -> Value {
    let minor = state.profile.minor;
    json!({
        "major": "1", "minor": minor.to_string(), "gitVersion": format!("v1.{minor}.0-simcluster"), "gitCommit": "",
        "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "",
    })
}

fn group<'a>(name: &str, served: impl Iterator<Item = &'a std::sync::Arc<Resource>>) -> Value {
    let mut versions: Vec<&str> =
        served.filter(|resource| resource.group == name).map(|resource| &*resource.version).collect();
    versions.sort_unstable();
    versions.dedup();
    let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

/// Returns the discovery entries of a resource and its subresources.
fn described(resource: &Resource) -> Vec<Value> {
    let verbs: Vec<&str> = if resource.verbs.is_empty() {
        // Namespaces have no `deletecollection`.
        VERBS.into_iter().filter(|verb| resource.kind != "Namespace" || *verb != "deletecollection").collect()
    } else {
        resource.verbs.iter().map(String::as_str).collect()
    };
    let mut whole = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": verbs,
    });
    if !resource.short.is_empty() {
        whole["shortNames"] = json!(resource.short);
    }
    let parts = resource.subresources.iter().map(|sub| {
        let kind = match &**sub {
            "binding" => "Binding",
            "token" => "TokenRequest",
            _ => &*resource.kind,
        };
        let mut part = json!({
            "name": format!("{}/{sub}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
            "kind": kind, "verbs": verbs_of(sub),
        });
        if sub == "token" {
            part["group"] = json!("authentication.k8s.io");
            part["version"] = json!("v1");
        }
        part
    });
    std::iter::once(whole).chain(parts).collect()
}
