//! Waits until an API server acts on manifests that it has stored: it learns of kinds, roles, bindings and policies from
//! watches of its own, a moment after the answer to the write.

use serde_json::{Value, json};

use crate::client::{Client, path};
use crate::wait;

/// Waits until the kinds of the CustomResourceDefinitions are served.
pub async fn kinds(client: &Client, objects: &[Value]) -> anyhow::Result<()> {
    for definition in objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition") {
        is_served(client, definition).await?;
    }
    Ok(())
}

/// Waits until the rights of the roles that are bound are given.
pub async fn rights(client: &Client, objects: &[Value]) -> anyhow::Result<()> {
    let is_bound =
        |object: &&Value| matches!(object["kind"].as_str(), Some("ClusterRoleBinding" | "RoleBinding"));
    for binding in objects.iter().filter(is_bound) {
        let of = &binding["roleRef"];
        let is_it = |role: &&Value| role["kind"] == of["kind"] && role["metadata"]["name"] == of["name"];
        let role = objects.iter().find(is_it);
        let rules = role.and_then(|role| role["rules"].as_array()).into_iter().flatten();
        for rule in rules.filter(|rule| rule["resources"].is_array()) {
            is_given(client, binding, rule).await?;
        }
    }
    Ok(())
}

async fn is_served(client: &Client, definition: &Value) -> anyhow::Result<()> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let collection = format!("/apis/{group}/{}/{plural}", text(&spec["versions"][0]["name"]));
    let served = async || client.list(&collection, "").await.is_ok();
    wait::until(&format!("the kind {plural}.{group} is served"), served).await
}

async fn is_given(client: &Client, binding: &Value, rule: &Value) -> anyhow::Result<()> {
    let (resource, subresource) = match rule["resources"][0].as_str().unwrap_or_default().split_once('/') {
        Some((resource, subresource)) => (json!(resource), json!(subresource)),
        None => (rule["resources"][0].clone(), Value::Null),
    };
    let subject = &binding["subjects"][0];
    let [namespace, name] = ["namespace", "name"].map(|field| subject[field].as_str().unwrap_or_default());
    let user = format!("system:serviceaccount:{namespace}:{name}");
    may(
        client,
        &user,
        &json!({
            "verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": resource,
            "subresource": subresource, "name": rule["resourceNames"][0],
            "namespace": binding["metadata"]["namespace"],
        }),
    )
    .await
}

/// Waits until a user has a right.
pub async fn may(client: &Client, user: &str, attributes: &Value) -> anyhow::Result<()> {
    is_allowed(client, user, attributes, true).await
}

/// Waits until a user does not have a right any more.
pub async fn may_not(client: &Client, user: &str, attributes: &Value) -> anyhow::Result<()> {
    is_allowed(client, user, attributes, false).await
}

async fn is_allowed(client: &Client, user: &str, attributes: &Value, wanted: bool) -> anyhow::Result<()> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    });
    let reviews = path("/apis/authorization.k8s.io/v1/subjectaccessreviews", "");
    wait::value(&format!("{user} has the right {attributes}: {wanted}"), async || {
        let answer = client.create(&reviews, "", &review).await?;
        Ok((answer["status"]["allowed"] == wanted).then_some(()))
    })
    .await
}
