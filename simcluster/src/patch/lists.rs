//! The lists of each kind that are merged element by element, and the fields that identify their elements.

use serde_json::Value;

use crate::api::meta::items;

/// The merge behavior of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum List {
    /// The list is replaced as a whole.
    Atomic,
    /// An element is identified by its value.
    Set,
    /// An element is identified by these fields.
    Map(Vec<String>),
}

/// The lists of a kind that are not atomic, and the objects that are. A path consists of the names of fields,
/// without elements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lists(Vec<(Vec<String>, List)>, Vec<Vec<String>>);

impl Lists {
    /// Returns the merge behavior of the list at a path.
    pub(crate) fn at(&self, path: &[String]) -> &List {
        const ATOMIC: &List = &List::Atomic;
        self.0.iter().find(|(known, _)| known == path).map_or(ATOMIC, |(_, list)| list)
    }

    /// Whether the object at a path is owned and applied as a whole.
    pub(crate) fn is_whole(&self, path: &[String]) -> bool {
        self.1.iter().any(|known| known == path)
    }
}

/// Returns the objects of a kind that are owned and applied as a whole.
fn whole_in(kind: &str) -> &'static [&'static str] {
    match kind {
        "Pod" | "ResourceSlice" => &["spec.nodeSelector"],
        "ResourceClaim" => &["status.allocation.nodeSelector"],
        "RoleBinding" | "ClusterRoleBinding" => &["roleRef"],
        _ => &[],
    }
}

const META: &[(&str, &str)] = &[("metadata.ownerReferences", "uid"), ("metadata.finalizers", "")];

const POD_SPEC: &[(&str, &str)] = &[
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("containers.env", "name"),
    ("initContainers.env", "name"),
    ("containers.ports", "containerPort,protocol"),
    ("containers.volumeMounts", "mountPath"),
    ("containers.resources.claims", "name"),
    ("initContainers.resources.claims", "name"),
    ("volumes", "name"),
    ("imagePullSecrets", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey,whenUnsatisfiable"),
    ("schedulingGates", "name"),
    ("resourceClaims", "name"),
];

/// Returns the lists of a built-in kind.
pub(crate) fn lists_of(kind: &str) -> Lists {
    let own: &[(&str, &str)] = match kind {
        "Pod" => &[
            ("status.conditions", "type"),
            ("status.podIPs", "ip"),
            ("status.resourceClaimStatuses", "name"),
            ("status.nodeAllocatableResourceClaimStatuses", "resourceClaimName"),
        ],
        "Node" => &[("status.conditions", "type"), ("status.addresses", "type")],
        "ResourceClaim" => &[
            ("status.reservedFor", "uid"),
            ("status.devices", "driver,device,pool,shareID"),
            ("status.devices.conditions", "type"),
        ],
        "PodGroup" => &[
            ("spec.resourceClaims", "name"),
            ("status.resourceClaimStatuses", "name"),
            ("status.conditions", "type"),
        ],
        "ServiceAccount" => &[("secrets", "name")],
        "Namespace"
        | "Deployment"
        | "PodDisruptionBudget"
        | "CustomResourceDefinition"
        | "DeviceTaintRule" => &[("status.conditions", "type")],
        _ => &[],
    };
    let prefix = match kind {
        "Pod" => Some("spec"),
        "Deployment" => Some("spec.template.spec"),
        _ => None,
    };
    let row = |path: String, keys: &str| {
        let list = match keys {
            "" => List::Set,
            keys => List::Map(keys.split(',').map(str::to_owned).collect()),
        };
        (path.split('.').map(str::to_owned).collect(), list)
    };
    let flat = META.iter().chain(own).map(|(path, keys)| row((*path).to_owned(), keys));
    let of_pods = prefix
        .into_iter()
        .flat_map(|prefix| POD_SPEC.iter().map(move |(path, keys)| row(format!("{prefix}.{path}"), keys)));
    let whole = whole_in(kind).iter().map(|path| path.split('.').map(str::to_owned).collect());
    Lists(flat.chain(of_pods).collect(), whole.collect())
}

/// Returns the lists of a custom resource, from its schema.
pub(crate) fn lists_of_schema(schema: &Value) -> Lists {
    let mut lists = lists_of("");
    collect(schema, &mut Vec::new(), &mut lists);
    lists
}

fn collect(schema: &Value, path: &mut Vec<String>, lists: &mut Lists) {
    let list = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => Some(List::Set),
        Some("map") => {
            let keys = items(&schema["x-kubernetes-list-map-keys"]).filter_map(Value::as_str);
            Some(List::Map(keys.map(str::to_owned).collect()))
        }
        _ => None,
    };
    lists.0.extend(list.map(|list| (path.clone(), list)));
    if schema["x-kubernetes-map-type"] == "atomic" {
        lists.1.push(path.clone());
    }
    if schema["items"].is_object() {
        collect(&schema["items"], path, lists);
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        collect(schema, path, lists);
        path.pop();
    }
}

/// Returns the key of an element, as `managedFields` writes it: the values of the key fields.
pub(crate) fn key_of(element: &Value, keys: &[String]) -> Value {
    let default = |key: &str| match key {
        "protocol" => Value::from("TCP"),
        _ => Value::Null,
    };
    let of = |key: &String| {
        let value = element.get(key).cloned().unwrap_or_else(|| default(key));
        (!value.is_null()).then(|| (key.clone(), value))
    };
    keys.iter().filter_map(of).collect()
}
