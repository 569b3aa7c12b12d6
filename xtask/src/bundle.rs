//! The OLM bundle, from the manifests that kustomize has: a `ClusterServiceVersion` with the Deployment and the rights of
//! `config/base`, the definitions of our kinds, and the roles that are bound by hand.

use anyhow::Context as _;
use base64::Engine as _;
use serde_json::{Map, Value, json};

/// The version of the bundle: that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The roles that every installation has bound.
const BOUND: [&str; 3] = ["dragoman-observe", "dragoman-assist", "dragoman-lease"];
/// Roles that an installation brings along without a binding: to bind one of them is a decision of an
/// administrator.
const UNBOUND: [&str; 4] = [
    "base/roles.yaml",
    "components/gating/roles.yaml",
    "components/holders/roles.yaml",
    "components/delete-unbound/roles.yaml",
];
const EXAMPLES: [&str; 3] =
    ["examples/claimgate-quota.yaml", "examples/devicefootprint-gpu.yaml", "examples/driverowner-gpu.yaml"];
const HEAD: &str = "# Rendered by `cargo xtask gen` from config/; do not edit.\n";

/// The files of `config/olm/bundle/manifests`: name and text. `read` returns a file under `config/`.
///
/// # Errors
/// A manifest cannot be read, or is not of the expected form.
pub(crate) fn render(read: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<Vec<(String, String)>> {
    let objects = |path: &str| parse(&read(path)?).with_context(|| path.to_owned());
    let mut files = Vec::new();
    for definition in objects("crds/crds.yaml")? {
        files.push((format!("{}.yaml", text(&definition, "/metadata/name")?), definition));
    }
    for path in UNBOUND {
        for mut role in objects(path)? {
            let name = text(&role, "/metadata/name")?;
            if !BOUND.contains(&&*name) {
                // That of the installation, which OLM puts in.
                role.pointer_mut("/metadata")
                    .and_then(Value::as_object_mut)
                    .map(|meta| meta.remove("namespace"));
                let kind = text(&role, "/kind")?.to_lowercase();
                files.push((format!("{name}.{kind}.yaml"), role));
            }
        }
    }
    files.extend(
        objects("components/holders/priorityclass.yaml")?
            .into_iter()
            .map(|class| ("dragoman-holder.priorityclass.yaml".to_owned(), class)),
    );
    let mut version = objects("olm/base.yaml")?.pop().context("olm/base.yaml is empty")?;
    let [roles, deployment] = ["base/roles.yaml", "base/deployment.yaml"].map(objects);
    let examples = EXAMPLES.iter().map(|path| objects(path)).collect::<anyhow::Result<Vec<_>>>()?.concat();
    complete(&mut version, &roles?, &deployment?, &examples, &read("olm/icon.svg")?)?;
    files.push(("dragoman.clusterserviceversion.yaml".to_owned(), version));
    let text = |(name, object): (String, Value)| {
        let text = serde_saphyr::to_string(&object).with_context(|| name.clone())?;
        Ok((name, format!("{HEAD}{text}")))
    };
    files.into_iter().map(text).collect()
}

/// Adds what follows from the manifests to the `ClusterServiceVersion`.
fn complete(
    version: &mut Value,
    roles: &[Value],
    deployment: &[Value],
    examples: &[Value],
    icon: &str,
) -> anyhow::Result<()> {
    let deployment = deployment.first().context("no Deployment")?;
    let image = text(deployment, "/spec/template/spec/containers/0/image")?;
    let bound = |kind: &str| {
        let mine = roles.iter().filter(|role| {
            role["kind"] == kind && BOUND.iter().any(|name| role["metadata"]["name"] == *name)
        });
        let given: Vec<Value> = mine.filter_map(|role| role["rules"].as_array().cloned()).flatten().collect();
        json!([{"serviceAccountName": deployment["spec"]["template"]["spec"]["serviceAccountName"], "rules": given}])
    };
    let meta = part(version, "/metadata")?;
    meta.insert("name".to_owned(), json!(format!("dragoman.v{VERSION}")));
    let annotations = part(version, "/metadata/annotations")?;
    annotations.insert("alm-examples".to_owned(), json!(serde_json::to_string_pretty(examples)?));
    annotations.insert("containerImage".to_owned(), json!(image));
    let spec = part(version, "/spec")?;
    spec.insert("version".to_owned(), json!(VERSION));
    let icon = base64::engine::general_purpose::STANDARD.encode(icon.trim_end());
    spec.insert("icon".to_owned(), json!([{"base64data": icon, "mediatype": "image/svg+xml"}]));
    spec.insert("relatedImages".to_owned(), json!([{"name": "dragoman", "image": image}]));
    part(version, "/spec/install")?.insert(
        "spec".to_owned(),
        json!({
            "clusterPermissions": bound("ClusterRole"),
            "permissions": bound("Role"),
            "deployments": [{
                "name": deployment["metadata"]["name"],
                "label": deployment["metadata"]["labels"],
                "spec": deployment["spec"],
            }],
        }),
    );
    Ok(())
}

fn part<'a>(object: &'a mut Value, pointer: &str) -> anyhow::Result<&'a mut Map<String, Value>> {
    object.pointer_mut(pointer).and_then(Value::as_object_mut).with_context(|| format!("no {pointer}"))
}

fn text(object: &Value, pointer: &str) -> anyhow::Result<String> {
    let text = object.pointer(pointer).and_then(Value::as_str);
    Ok(text.with_context(|| format!("no {pointer}"))?.to_owned())
}

fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(text).context("YAML")?;
    objects.retain(|object| !object.is_null());
    Ok(objects)
}
