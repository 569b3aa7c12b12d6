//! The schemas of the kinds of Kubernetes, as its API types describe themselves.

use k8s_openapi::Resource;
use k8s_openapi::api::{
    apps, coordination, core, events, networking, policy, rbac, resource, scheduling, storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// A kind that describes itself.
struct Described {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    name: fn() -> std::borrow::Cow<'static, str>,
    add: fn(&mut SchemaGenerator),
}

const fn kind<T: Resource + JsonSchema>() -> Described {
    Described {
        group: T::GROUP,
        version: T::VERSION,
        kind: T::KIND,
        name: T::schema_name,
        add: |generator| drop(generator.subschema_for::<T>()),
    }
}

const KINDS: &[Described] = &[
    kind::<core::v1::ConfigMap>(),
    kind::<core::v1::Namespace>(),
    kind::<core::v1::Node>(),
    kind::<core::v1::PersistentVolume>(),
    kind::<core::v1::PersistentVolumeClaim>(),
    kind::<core::v1::Pod>(),
    kind::<core::v1::ReplicationController>(),
    kind::<core::v1::ResourceQuota>(),
    kind::<core::v1::Secret>(),
    kind::<core::v1::Service>(),
    kind::<core::v1::ServiceAccount>(),
    kind::<apps::v1::Deployment>(),
    kind::<apps::v1::ReplicaSet>(),
    kind::<apps::v1::StatefulSet>(),
    kind::<coordination::v1::Lease>(),
    kind::<events::v1::Event>(),
    kind::<networking::v1::NetworkPolicy>(),
    kind::<policy::v1::PodDisruptionBudget>(),
    kind::<rbac::v1::ClusterRole>(),
    kind::<rbac::v1::ClusterRoleBinding>(),
    kind::<rbac::v1::Role>(),
    kind::<rbac::v1::RoleBinding>(),
    kind::<storage::v1::CSIDriver>(),
    kind::<storage::v1::CSINode>(),
    kind::<storage::v1::CSIStorageCapacity>(),
    kind::<storage::v1::StorageClass>(),
    kind::<storage::v1::VolumeAttachment>(),
    kind::<scheduling::v1::PriorityClass>(),
    kind::<apiextensions::v1::CustomResourceDefinition>(),
    kind::<resource::v1::DeviceClass>(),
    kind::<resource::v1::ResourceClaim>(),
    kind::<resource::v1::ResourceClaimTemplate>(),
    kind::<resource::v1::ResourceSlice>(),
];

/// The schemas of a group version and of the types that they use, by name.
pub(super) fn described(group: &str, version: &str) -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let mut names = Vec::new();
    for kind in KINDS.iter().filter(|kind| kind.group == group && kind.version == version) {
        (kind.add)(&mut generator);
        let gvk = json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
        names.push(((kind.name)(), gvk));
    }
    let mut schemas = generator.take_definitions(true);
    for (name, gvk) in names {
        if let Some(schema) = schemas.get_mut(&*name) {
            schema["x-kubernetes-group-version-kind"] = gvk;
        }
    }
    schemas
}
