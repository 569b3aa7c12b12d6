//! Whether a cluster is ready for DRA and for each mode of Dragoman: what was seen of it becomes findings, each with what to do
//! (docs/support.md).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::explain::claim::first;
use crate::explain::{age, count};
use crate::facts::Facts;
use crate::lists;
use crate::printable;

/// The first minor version of Kubernetes 1 that serves `resource.k8s.io/v1`.
const FIRST: u32 = 34;
/// The first one that serves `MutatingAdmissionPolicy` of `v1`, which claim gates need.
const FIRST_WITH_GATES: u32 = 36;
/// The newest one that Dragoman was run on.
const NEWEST: u32 = 37;
/// The feature gate that lets kube-scheduler count what claims take of nodes (KEP-5517).
const NODE_ALLOCATABLE: &str = "DRANodeAllocatableResources";

/// A component with a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// The process that holds the Lease.
    pub holder: String,
    /// Seconds since it renewed the Lease, by the newest renewal of any Lease: the clock of the reader may be wrong.
    pub renewed: Option<i64>,
}

/// Seconds after which the holder of a Lease counts as gone.
const GONE_AFTER: i64 = 60;
/// Seconds for which a claim shows that its maker still runs.
const RECENT: i64 = 600;

impl Leader {
    fn is_live(&self) -> bool {
        !self.holder.is_empty() && self.renewed.is_some_and(|renewed| renewed < GONE_AFTER)
    }
}

/// Properties of a cluster. A property that could not be read is `None`, and `facts` says why.
#[derive(Debug, Default)]
pub struct Seen {
    /// `gitVersion` of the API server.
    pub version: Option<String>,
    /// Resources that are served, by `GROUP/VERSION`. A version that is missing here could not be asked about.
    pub served: BTreeMap<String, BTreeSet<String>>,
    /// Feature gates of the API server, where its metrics could be read.
    pub gates: Option<BTreeMap<String, bool>>,
    /// The number of nodes by version of their kubelet.
    pub kubelets: Option<BTreeMap<String, usize>>,
    /// Whether Leases could be read.
    pub reads_leases: bool,
    /// The leader of kube-controller-manager.
    pub controller_manager: Option<Leader>,
    /// NAMESPACE/NAME and age in seconds of the newest claim that kube-controller-manager made from a template.
    pub built_in_made: Option<(String, i64)>,
    /// The namespace and the leader of Dragoman's operator.
    pub operator: Option<(String, Leader)>,
    /// Names of Dragoman's admission policies that are installed.
    pub policies: Option<BTreeSet<String>>,
    /// Namespaces whose Pods are to get the gate.
    pub gated: Option<Vec<String>>,
    /// Slices, classes and quotas.
    pub facts: Facts,
}

/// State of a part of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, and needs attention.
    Warning,
    /// DRA or Dragoman does not work without it.
    Missing,
    /// Could not be found out.
    Unknown,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        }
    }
}

/// A finding about a part of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The part.
    pub part: &'static str,
    /// State of the part.
    pub level: Level,
    /// The state in a sentence.
    pub says: String,
    /// Advice to the reader; empty if there is nothing to do.
    pub advice: String,
}

/// Whether a use of DRA or of Dragoman is possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Use {
    /// The use.
    pub name: &'static str,
    /// Whether nothing stands in its way.
    pub ready: bool,
    /// Reasons against it; empty if it is ready.
    pub because: Vec<String>,
}

/// The findings about a cluster.
#[derive(Debug, Serialize)]
pub struct Readiness {
    /// Findings by part.
    pub findings: Vec<Finding>,
    /// Uses for which the cluster is ready or not.
    pub uses: Vec<Use>,
    /// Resources that could not be read, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
}

fn finding(part: &'static str, level: Level, says: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { part, level, says: says.into(), advice: advice.into() }
}

/// Judges what was seen.
pub fn readiness(seen: &Seen) -> Readiness {
    let mut findings = vec![seen.kubernetes(), seen.api(), seen.gates(), seen.kubelets()];
    findings.extend(seen.drivers());
    findings.extend([seen.classes(), seen.quotas(), seen.claims(), seen.dragoman()]);
    findings.extend(seen.gating());
    Readiness { findings, uses: seen.uses(), lacks: seen.facts.partial() }
}

impl Seen {
    /// Whether a resource of a group version is served; `None` where that could not be asked.
    fn serves(&self, version: &str, resource: &str) -> Option<bool> {
        Some(self.served.get(version)?.contains(resource))
    }

    /// The minor version of Kubernetes 1.
    fn minor(&self) -> Option<u32> {
        let mut parts = self.version.as_deref()?.trim_start_matches('v').split('.');
        let (major, minor) = (parts.next()?, parts.next()?);
        let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
        if major == "1" { digits.parse().ok() } else { None }
    }

    fn kubernetes(&self) -> Finding {
        const PART: &str = "Kubernetes";
        let Some(version) = &self.version else {
            return finding(PART, Level::Unknown, "the version of the API server could not be read", "");
        };
        match self.minor() {
            Some(minor) if minor < FIRST => finding(
                PART,
                Level::Missing,
                format!("{version} is older than 1.{FIRST}"),
                format!("upgrade to Kubernetes 1.{FIRST} or newer"),
            ),
            Some(minor) if minor > NEWEST => finding(
                PART,
                Level::Warning,
                format!("{version} is newer than 1.{NEWEST}, the newest that Dragoman was run on"),
                "fields that this version does not know are reported and nothing is allocated by them",
            ),
            _ => finding(PART, Level::Ok, version.clone(), ""),
        }
    }

    fn api(&self) -> Finding {
        const PART: &str = "DRA";
        match self.serves("resource.k8s.io/v1", "resourceclaims") {
            Some(true) => return finding(PART, Level::Ok, "the API server serves resource.k8s.io/v1", ""),
            None => {
                let says = "it could not be asked whether the API server serves resource.k8s.io/v1";
                return finding(PART, Level::Unknown, says, "");
            }
            Some(false) => {}
        }
        let older: Vec<&str> = ["resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1"]
            .into_iter()
            .filter(|version| self.serves(version, "resourceclaims") == Some(true))
            .collect();
        let older =
            if older.is_empty() { "nor an older version of it" } else { "only an older version of it" };
        finding(
            PART,
            Level::Missing,
            format!("the API server does not serve resource.k8s.io/v1, {older}"),
            format!("Kubernetes 1.{FIRST} serves it by default; look at --runtime-config of kube-apiserver"),
        )
    }

    fn gates(&self) -> Finding {
        const PART: &str = "amounts of claims";
        let Some(gates) = &self.gates else {
            return finding(
                PART,
                Level::Unknown,
                format!(
                    "whether the feature gate {NODE_ALLOCATABLE} is on could not be read from the metrics of the API server"
                ),
                "an administrator may read /metrics; without the gate Dragoman counts what claims take, and kube-scheduler does not",
            );
        };
        match gates.get(NODE_ALLOCATABLE) {
            Some(true) => finding(
                PART,
                Level::Ok,
                format!("the feature gate {NODE_ALLOCATABLE} of the API server is on"),
                "it has to be on in kube-scheduler and kubelet too",
            ),
            known => finding(
                PART,
                Level::Warning,
                format!(
                    "the feature gate {NODE_ALLOCATABLE} of the API server {}: kube-scheduler does not count the cpu and memory that claims take",
                    if known.is_some() { "is off" } else { "does not exist" }
                ),
                "DeviceFootprints declare what devices take, `kubectl dra ledger` counts it, and claim gates keep Pods from full nodes",
            ),
        }
    }

    fn kubelets(&self) -> Finding {
        const PART: &str = "nodes";
        let Some(kubelets) = &self.kubelets else {
            return finding(PART, Level::Unknown, "the nodes could not be read", "");
        };
        let minor = |version: &str| Self { version: Some(version.to_owned()), ..Self::default() }.minor();
        let is_old = |version: &&String| minor(version).is_some_and(|minor| minor < FIRST);
        let old: usize = kubelets.iter().filter(|(version, _)| is_old(version)).map(|(_, nodes)| nodes).sum();
        let all: usize = kubelets.values().sum();
        match (all, old) {
            (0, _) => finding(PART, Level::Missing, "there is no node", ""),
            (_, 0) => {
                let versions: Vec<&str> = kubelets.keys().map(String::as_str).collect();
                finding(
                    PART,
                    Level::Ok,
                    format!("{} with kubelet {}", counted(all, "node"), versions.join(", ")),
                    "",
                )
            }
            _ => finding(
                PART,
                Level::Warning,
                format!("the kubelet of {old} of {} is older than 1.{FIRST}", counted(all, "node")),
                "Pods with claims do not start there: upgrade these nodes",
            ),
        }
    }

    /// A finding for each driver, or that there is none.
    fn drivers(&self) -> Vec<Finding> {
        const PART: &str = "driver";
        let is_served = self.serves("resource.k8s.io/v1", "resourceslices");
        if self.facts.lacks("resourceslices") || is_served.is_none() {
            return vec![finding(PART, Level::Unknown, "ResourceSlices could not be read", "")];
        }
        let pools = lists::pools(&self.facts);
        let mut drivers: BTreeMap<String, (usize, i64, Vec<String>)> = BTreeMap::new();
        for row in &pools.rows {
            let text = |field| pools.cell(row, field).map(|cell| cell.shown.clone()).unwrap_or_default();
            let driver = drivers.entry(text("driver")).or_default();
            driver.0 += 1;
            driver.1 += pools.cell(row, "total").and_then(|cell| cell.value.as_i64()).unwrap_or_default();
            if text("state") != "Ready" {
                driver.2.push(format!("{} ({})", text("pool"), text("state")));
            }
        }
        if drivers.is_empty() {
            let advice = "install a DRA driver, and look whether its Pods run on the nodes";
            return vec![finding(PART, Level::Missing, "no driver publishes devices", advice)];
        }
        let of = |(driver, (pools, devices, broken)): (String, (usize, i64, Vec<String>))| {
            let has = format!("{driver} publishes {devices} devices in {}", counted(pools, "pool"));
            if broken.is_empty() {
                return finding(PART, Level::Ok, has, "");
            }
            let says = format!("{has}; nothing is allocated from {}", first(&broken));
            finding(PART, Level::Warning, says, "the driver has to publish these pools anew: look at its log")
        };
        drivers.into_iter().map(of).collect()
    }

    fn classes(&self) -> Finding {
        const PART: &str = "classes";
        let is_served = self.serves("resource.k8s.io/v1", "deviceclasses");
        if self.facts.lacks("deviceclasses") || is_served.is_none() {
            return finding(PART, Level::Unknown, "DeviceClasses could not be read", "");
        }
        match self.facts.cluster.classes.len() {
            0 => finding(
                PART,
                Level::Missing,
                "there is no DeviceClass, and every request for devices names one",
                "the driver brings its class, or an administrator creates it",
            ),
            classes => finding(PART, Level::Ok, count(classes, "DeviceClass", "DeviceClasses"), ""),
        }
    }

    /// The quotas that admit no more claims or devices.
    fn quotas(&self) -> Finding {
        const PART: &str = "quotas";
        if self.facts.lacks("resourcequotas") {
            return finding(PART, Level::Unknown, "ResourceQuotas could not be read", "");
        }
        let (mut concerned, mut full) = (0, Vec::new());
        for ((namespace, name), quota) in &self.facts.quotas {
            concerned += usize::from(quota.is_about_claims());
            let of_full = quota.full().into_iter();
            full.extend(
                of_full.map(|of| format!("{namespace}/{name} ({} of {} {})", of.used, of.hard, of.resource)),
            );
        }
        if full.is_empty() {
            let says = match concerned {
                0 => "no ResourceQuota limits claims or devices".to_owned(),
                _ => format!(
                    "{} limits claims or devices, and none is full",
                    count(concerned, "ResourceQuota", "ResourceQuotas")
                ),
            };
            return finding(PART, Level::Ok, says, "");
        }
        finding(
            PART,
            Level::Warning,
            format!("full: {}", first(&full)),
            "Pods of these namespaces wait for their claims: their administrators raise the quota, or Pods end",
        )
    }

    /// The controller that makes claims from templates.
    fn claims(&self) -> Finding {
        const PART: &str = "claims of templates";
        if self.owns() {
            return finding(PART, Level::Ok, "Dragoman makes them", "");
        }
        let advice = "create a Pod with a template and look whether it gets a claim";
        let (level, says) = match (&self.built_in_made, &self.controller_manager) {
            (Some((claim, age)), _) => {
                let says = format!("kube-controller-manager made {claim} {} ago", since(*age));
                return finding(PART, Level::Ok, says, "");
            }
            (None, Some(leader)) if leader.is_live() => (
                Level::Ok,
                "kube-controller-manager runs, and no claim shows whether its resourceclaim-controller does",
            ),
            (None, Some(_)) => (Level::Warning, "kube-controller-manager does not renew its Lease"),
            (None, None) if self.reads_leases => {
                (Level::Unknown, "kube-controller-manager has no Lease, as on many managed control planes")
            }
            (None, None) => (Level::Unknown, "Leases could not be read"),
        };
        finding(PART, level, says, advice)
    }

    fn dragoman(&self) -> Finding {
        const PART: &str = "Dragoman";
        let has_kinds = self.served.get("dragoman.dev/v1alpha1").is_some_and(|of| !of.is_empty());
        match &self.operator {
            Some((namespace, leader)) if leader.is_live() => {
                let mode = leader.holder.rsplit('_').next().unwrap_or_default();
                finding(PART, Level::Ok, format!("runs in namespace {namespace} in mode {mode}"), "")
            }
            Some((namespace, leader)) => {
                let renewed =
                    leader.renewed.map_or_else(|| "never".to_owned(), |of| format!("{} ago", since(of)));
                finding(
                    PART,
                    Level::Warning,
                    format!("has a Lease in namespace {namespace} that was renewed {renewed}"),
                    format!("look at the Pods of Deployment dragoman in namespace {namespace}"),
                )
            }
            None if !self.reads_leases => finding(
                PART,
                Level::Unknown,
                "Leases could not be read, by which a running operator is seen",
                "",
            ),
            None if has_kinds => finding(
                PART,
                Level::Warning,
                "its kinds are installed, and no operator has a Lease",
                "install the operator, or look why its Pods do not start",
            ),
            None => finding(PART, Level::Ok, "is not installed; `kubectl dra` needs nothing of it", ""),
        }
    }

    /// Whether claim gates are on, and enforced.
    fn gating(&self) -> Option<Finding> {
        const PART: &str = "claim gates";
        let (Some(policies), Some(gated)) = (&self.policies, &self.gated) else {
            let says = "admission policies or namespaces could not be read";
            return Some(finding(PART, Level::Unknown, says, ""));
        };
        let missing: Vec<String> = POLICIES
            .iter()
            .filter(|name| !policies.contains(**name))
            .map(|name| (*name).to_owned())
            .collect();
        let has_any = missing.len() < POLICIES.len();
        let spaces = counted(gated.len(), "namespace");
        match (has_any, gated.is_empty()) {
            (false, true) => None,
            (false, false) => Some(finding(
                PART,
                Level::Missing,
                format!(
                    "{spaces} ({}) have the label of gating, and no policy is installed: their Pods get no gate",
                    first(gated)
                ),
                "run `dragoman gating on`, or take the label away",
            )),
            (true, _) if !missing.is_empty() => Some(finding(
                PART,
                Level::Missing,
                format!("policies are missing: {}", first(&missing)),
                "run `dragoman gating on`, or apply the package again",
            )),
            (true, _) => Some(finding(PART, Level::Ok, format!("are on in {spaces}"), "")),
        }
    }

    /// Returns the uses of DRA and Dragoman, each with the reasons against it.
    fn uses(&self) -> Vec<Use> {
        let named = |name, against: Vec<Option<String>>| {
            let because: Vec<String> = against.into_iter().flatten().collect();
            Use { name, ready: because.is_empty(), because }
        };
        let needs = |version: &str, resource: &str, first: u32| match self.serves(version, resource) {
            Some(true) => None,
            Some(false) => Some(format!(
                "{resource} of {version} is not served; Kubernetes 1.{first} and newer serve it"
            )),
            None => Some(format!("it is not known whether {resource} of {version} is served")),
        };
        let api = || needs("resource.k8s.io/v1", "resourceclaims", FIRST);
        let policies =
            needs("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", FIRST_WITH_GATES);
        vec![
            named("kubectl dra", vec![api()]),
            named("modes observe, assist and auto", vec![api()]),
            named("mode own", vec![api(), self.second_writer()]),
            named("claim gates and the allocator", vec![api(), policies]),
        ]
    }

    /// The reason against mode own, if the built-in controller runs or may run.
    fn second_writer(&self) -> Option<String> {
        let advice = "switch the built-in controller off first: `kube-controller-manager --controllers=*,-resourceclaim-controller`";
        let has_made = self.built_in_made.as_ref().is_some_and(|(_, age)| *age < RECENT);
        match &self.controller_manager {
            _ if has_made => Some(advice.to_owned()),
            // The operator has found no second writer.
            _ if self.owns() => None,
            Some(leader) if leader.is_live() => Some(advice.to_owned()),
            Some(_) => None,
            None => Some(format!("it is not known whether the built-in controller runs; {advice}")),
        }
    }

    /// Whether Dragoman runs in mode own: then it has found no second writer.
    fn owns(&self) -> bool {
        self.operator.as_ref().is_some_and(|(_, leader)| leader.is_live() && leader.holder.ends_with("_own"))
    }
}

/// Names of the policies with which Pods get the gate and keep it, and devices go to the allocator that owns their driver.
pub const POLICIES: [&str; 5] = [
    "dragoman-gate",
    "dragoman-gate-enforced",
    "dragoman-gate-bypassed",
    "dragoman-gate-owners",
    "dragoman-driver-owners",
];

/// A number of seconds as an age.
fn since(seconds: i64) -> String {
    let at = jiff::Timestamp::UNIX_EPOCH;
    let now = jiff::Timestamp::from_second(seconds.max(0)).unwrap_or(at);
    age(Some(&at.to_string()), now)
}

fn counted(number: usize, one: &str) -> String {
    count(number, one, &format!("{one}s"))
}

impl Readiness {
    /// Whether DRA itself does not work, or a part of Dragoman that is installed does not.
    pub fn is_blocked(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == Level::Missing)
    }

    /// The findings for people.
    pub fn in_words(&self) -> String {
        let width = self.findings.iter().map(|finding| finding.part.len()).max().unwrap_or_default();
        let mut text = String::new();
        for Finding { part, level, says, advice } in &self.findings {
            text.push_str(&format!("{:8} {part:width$}  {}\n", level.word(), printable(says)));
            if !advice.is_empty() {
                text.push_str(&format!("{:8} {:width$}  → {}\n", "", "", printable(advice)));
            }
        }
        text.push_str("\nReady for:\n");
        let width = self.uses.iter().map(|of| of.name.len()).max().unwrap_or_default();
        for Use { name, ready, because } in &self.uses {
            let says = if *ready { "yes".to_owned() } else { format!("no: {}", because.join("; ")) };
            text.push_str(&format!("  {name:width$}  {says}\n"));
        }
        self.lacks.iter().for_each(|lack| text.push_str(&format!("partial: {}\n", printable(lack))));
        text
    }
}
