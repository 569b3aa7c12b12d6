//! The metric that joins Pods, their claims and their devices, so that figures of a device can be attributed to the Pods that use it.
//!
//! Names of labels are those of kube-state-metrics: `namespace`, `pod`, `uid`, `node`. Every name in it comes from a tenant, so that the
//! number of series is bounded.

use std::sync::Arc;

use dragoman_accounting::cluster::{ClusterLedger, PodDevice};
use dragoman_machinery::metrics::Declare as _;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use dragoman_cluster::Attributes;

/// The most series. With names of usual length they take ten MiB.
const MOST: usize = 10_000;
/// The most attributes of devices as labels.
const MOST_ATTRIBUTES: usize = 8;
/// The most characters of the name of an attribute: a domain of 63, a slash and an identifier of 32.
const LONGEST: usize = 96;

/// An attribute of devices that becomes a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeLabel {
    attribute: Box<str>,
    label: Arc<str>,
}

/// Returns the labels for attributes of devices: `attribute_` and the name, in which what is neither a letter nor a digit is `_`.
///
/// # Errors
/// There are too many, one is no name of an attribute, or two have the same label.
pub fn attribute_labels(attributes: &[Box<str>]) -> Result<Vec<AttributeLabel>, String> {
    if attributes.len() > MOST_ATTRIBUTES {
        return Err(format!(
            "there are {} attributes, and at most {MOST_ATTRIBUTES} are possible",
            attributes.len()
        ));
    }
    let mut labels: Vec<AttributeLabel> = Vec::new();
    for attribute in attributes {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
        if attribute.is_empty() || attribute.len() > LONGEST || !attribute.chars().all(is_part) {
            return Err(format!("{attribute:?} is no name of an attribute"));
        }
        let name = attribute.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let label: Arc<str> = format!("attribute_{name}").into();
        if let Some(other) = labels.iter().find(|of| of.label == label) {
            return Err(format!("{attribute} and {} would have the same label {label}", other.attribute));
        }
        labels.push(AttributeLabel { attribute: attribute.clone(), label });
    }
    Ok(labels)
}

type Labels = Vec<(Arc<str>, String)>;

/// The metric.
pub(super) struct PodDeviceMetrics {
    devices: Family<Labels, Gauge>,
    left_out: Gauge,
}

impl PodDeviceMetrics {
    /// Registers the metric.
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            devices: registry.declare(
                "dragoman_pod_device_info",
                "A device of a claim that a Pod on a node has, with the value 1; the leader alone \
                 serves it (--pod-device-info)",
            ),
            left_out: registry.declare(
                "dragoman_pod_device_info_left_out",
                "Devices of claims of Pods that dragoman_pod_device_info leaves out: it has ten \
                 thousand series at most",
            ),
        }
    }

    /// Serves nothing: another process leads.
    pub(super) fn clear(&self) {
        self.devices.clear();
        self.left_out.set(0);
    }

    /// Serves the devices of all Pods on nodes, with these attributes.
    pub(super) fn measure(&self, ledger: &ClusterLedger, attributes: &[AttributeLabel]) {
        self.clear();
        let mut all = ledger.devices_of_pods();
        for of in all.by_ref().take(MOST) {
            self.devices.get_or_create(&labels(&of, attributes)).set(1);
        }
        self.left_out.set(i64::try_from(all.count()).unwrap_or(i64::MAX));
    }
}

fn labels(of: &PodDevice<'_>, attributes: &[AttributeLabel]) -> Labels {
    let fixed = [
        ("namespace", of.namespace),
        ("pod", of.pod),
        ("uid", of.uid),
        ("node", of.node),
        ("resourceclaim", of.claim),
        ("request", of.request),
        ("driver", of.device.driver),
        ("pool", of.device.pool),
        ("device", of.device.device),
        ("share", truth(of.is_share)),
        ("admin_access", truth(of.admin_access)),
    ];
    let fixed = fixed.into_iter().map(|(label, value)| (label.into(), value.to_owned()));
    // A device without the attribute has the label without a value, which for Prometheus is no label.
    let values = Attributes::of(&of.device);
    let read = |of_label: &AttributeLabel| values.value(&of_label.attribute).unwrap_or_default();
    fixed.chain(attributes.iter().map(|label| (Arc::clone(&label.label), read(label)))).collect()
}

fn truth(is: bool) -> &'static str {
    if is { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use dragoman_accounting::claim::allocation::DeviceResult;
    use dragoman_accounting::cluster::{Claim, ClaimName, Pod, PodClaim, Rules, Slice, SliceDevice};
    use dragoman_accounting::pod::PodSpecView;
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn pod(name: &str, node: Option<&str>, claim: &str) -> Pod {
        let view = PodSpecView {
            namespace: "ns".into(),
            name: name.into(),
            uid: format!("{name}-uid").into(),
            ..PodSpecView::default()
        };
        let claims = vec![PodClaim { claim: ClaimName::Named(claim.into()), ..PodClaim::default() }];
        Pod { view, node: node.map(Into::into), claims, ..Pod::default() }
    }

    fn claim(name: &str, devices: usize) -> Claim {
        let result = |number: usize| DeviceResult {
            request: "gpu".into(),
            driver: "d.example".into(),
            pool: "n".into(),
            device: format!("dev-{number}").into(),
            ..DeviceResult::default()
        };
        let results = Some((0..devices).map(result).collect());
        Claim { namespace: "ns".into(), name: name.into(), uid: "c".into(), results, ..Claim::default() }
    }

    fn served(ledger: &ClusterLedger, attributes: &[Box<str>]) -> Vec<String> {
        let mut registry = Registry::default();
        let metrics = PodDeviceMetrics::register(&mut registry);
        metrics.measure(ledger, &attribute_labels(attributes).expect("labels"));
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn a_pod_on_a_node_has_a_series_for_each_device_of_its_claims() {
        let mut ledger = ClusterLedger::new(Rules::default());
        let attributes = r#"{"uuid": {"string": "GPU-1"}}"#;
        let device =
            SliceDevice { name: "dev-0".into(), attributes: attributes.into(), ..SliceDevice::default() };
        ledger.put_slice(Slice {
            name: "s".into(),
            driver: "d.example".into(),
            pool: "n".into(),
            node: Some("n".into()),
            devices: vec![device],
            ..Slice::default()
        });
        ledger.put_claim(claim("one", 1));
        ledger.put_pod(pod("runs", Some("n"), "one"));
        ledger.put_pod(pod("waits", None, "one"));
        ledger.put_pod(pod("lacks", Some("n"), "missing"));
        let lines = served(&ledger, &["uuid".into(), "d.example/none".into()]);
        let device = r#"driver="d.example",pool="n",device="dev-0",share="false",admin_access="false""#;
        let known = format!(
            r#"dragoman_pod_device_info{{namespace="ns",pod="runs",uid="runs-uid",node="n",resourceclaim="one",request="gpu",{device},attribute_uuid="GPU-1",attribute_d_example_none=""}} 1"#
        );
        assert_eq!(lines, [known, "dragoman_pod_device_info_left_out 0".to_owned()]);
    }

    #[test]
    fn series_are_bounded_and_what_is_left_out_is_counted() {
        let mut ledger = ClusterLedger::new(Rules::default());
        ledger.put_claim(claim("many", MOST + 5));
        ledger.put_pod(pod("runs", Some("n"), "many"));
        let lines = served(&ledger, &[]);
        assert_eq!(
            (lines.len(), lines.last().map(String::as_str)),
            (MOST + 1, Some("dragoman_pod_device_info_left_out 5"))
        );
    }

    #[test]
    fn attributes_become_labels_or_are_refused() {
        let of = |names: &[&str]| {
            let names: Vec<Box<str>> = names.iter().map(|name| Box::from(*name)).collect();
            attribute_labels(&names)
        };
        let labels = of(&["uuid", "resource.kubernetes.io/pciBusID"]).expect("labels");
        let labels: Vec<&str> = labels.iter().map(|of| &*of.label).collect();
        assert_eq!(labels, ["attribute_uuid", "attribute_resource_kubernetes_io_pciBusID"]);
        for (wrong, words) in [
            (&[""][..], "is no name of an attribute"),
            (&["a b"], "is no name of an attribute"),
            (&[&*"a".repeat(97)], "is no name of an attribute"),
            (&["a.b", "a/b"], "would have the same label attribute_a_b"),
            (&["a", "b", "c", "d", "e", "f", "g", "h", "i"], "at most 8"),
        ] {
            let why = of(wrong).expect_err(words);
            assert!(why.contains(words), "{why}");
        }
    }
}
