//! Small random clusters, biased towards interactions of rules. The property tests of the allocator and the
//! comparison with Kubernetes (`lab/instruments/src/oracle/devices`) draw from them.

mod claim;
mod device;
pub(super) mod weights;

use fastrand::Rng;
use serde_json::{Map, Value, json};

const DRIVERS: [&str; 2] = ["gpu.example.com", "nic.example.com"];
const GATES: [&str; 12] = [
    "DRAAdminAccess",
    "DRADeviceCompatibilityGroups",
    "DRAConsumableCapacity",
    "DRADerivedAttributes",
    "DRADeviceBindingConditions",
    "DRADeviceTaints",
    "DRADeviceTaintRules",
    "DRAFractionalCapacityRange",
    "DRAListTypeAttributes",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
];

/// The features that a scenario exercises.
#[expect(clippy::struct_excessive_bools, reason = "each is there or not, whatever the others are")]
struct Themes {
    taints: bool,
    counters: bool,
    sharing: bool,
    lists: bool,
    derived: bool,
    networked: bool,
    binding: bool,
    groups: bool,
    admin: bool,
    constraints: bool,
    skips: bool,
    /// Pools are inconsistent.
    disorder: bool,
    /// Objects are invalid.
    mistakes: bool,
    held: bool,
    /// Many requests are for all devices, or for very many.
    all: bool,
}

struct Made<'a> {
    rng: &'a mut Rng,
    themes: Themes,
    nodes: Vec<String>,
    /// Driver, pool, device, and whether it may be shared.
    devices: Vec<(String, String, String, bool)>,
    slices: Vec<Value>,
}

impl Themes {
    fn drawn(rng: &mut Rng) -> Self {
        let mut theme = |percent: u8| rng.u8(0..100) < percent;
        Self {
            taints: theme(25),
            counters: theme(35),
            sharing: theme(30),
            lists: theme(12),
            derived: theme(10),
            networked: theme(25),
            binding: theme(10),
            groups: theme(25),
            admin: theme(15),
            constraints: theme(75),
            skips: theme(6),
            disorder: theme(4),
            mistakes: theme(9),
            held: theme(70),
            all: false,
        }
    }

    /// Adds themes that rarely meet by chance.
    fn meet(&mut self, rng: &mut Rng) {
        let themes = match rng.u8(0..6) {
            0 => [&mut self.disorder, &mut self.counters],
            1 => [&mut self.disorder, &mut self.all],
            2 => [&mut self.derived, &mut self.constraints],
            3 => [&mut self.lists, &mut self.constraints],
            4 => [&mut self.binding, &mut self.networked],
            _ => [&mut self.all, &mut self.sharing],
        };
        for theme in themes {
            *theme = true;
        }
    }
}

/// Draws a scenario. With `rare`, themes meet more often that rarely do by chance, so that fewer scenarios
/// reach every rule.
pub(super) fn scenario(rng: &mut Rng, rare: bool) -> Value {
    let mut themes = Themes::drawn(rng);
    if rare {
        themes.meet(rng);
    }
    let nodes = (0..rng.usize(1..=3)).map(|number| format!("node-{number}")).collect();
    let mut made = Made { rng, themes, nodes, devices: Vec::new(), slices: Vec::new() };
    made.slices();
    let claims = made.claims();
    let mut all = made.holders();
    let mut allocate: Vec<Value> = claims.iter().map(name_of).collect();
    if made.chance(8)
        && let Some(held) = all.first()
    {
        allocate.push(name_of(held));
    }
    all.extend(claims);
    let nodes: Vec<Value> =
        made.nodes.clone().iter().enumerate().map(|(n, name)| made.node(n, name)).collect();
    json!({
        "nodes": nodes,
        "resourceSlices": made.slices,
        "deviceClasses": made.classes(),
        "resourceClaims": all,
        "deviceTaintRules": made.rules(),
        "allocate": allocate,
        "candidates": made.nodes,
        "featureGates": made.gates(),
    })
}

fn name_of(claim: &Value) -> Value {
    let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name")).into()
}

impl Made<'_> {
    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(0..100) < percent
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of.get(self.rng.usize(0..of.len())).copied().unwrap_or_default()
    }

    fn gates(&mut self) -> Value {
        let all = self.chance(80);
        let gates = GATES.iter().map(|gate| ((*gate).to_owned(), (all || self.chance(80)).into()));
        Value::Object(gates.collect::<Map<_, _>>())
    }

    fn node(&mut self, number: usize, name: &str) -> Value {
        let features: &[&str] = if self.chance(50) { &["DRAOptionalNodeOperations"] } else { &[] };
        json!({
            "metadata": {"name": name, "labels": {
                "zone": if number == 0 { "a" } else { "b" }, "rank": number.to_string(),
            }},
            "status": {"declaredFeatures": features},
        })
    }

    fn slices(&mut self) {
        for node in self.nodes.clone() {
            for driver in DRIVERS {
                if self.chance(if driver == DRIVERS[0] { 95 } else { 40 }) {
                    self.pool(driver, &node, &json!({"nodeName": node}));
                }
            }
        }
        if self.themes.networked {
            let access = match self.rng.u8(0..5) {
                0 => json!({"allNodes": true}),
                1 => json!({"perDeviceNodeSelection": true}),
                _ => json!({"nodeSelector": self.node_selector()}),
            };
            let driver = self.one(&DRIVERS);
            let pool = self.one(&["net", "a-net", "node-0x"]);
            self.pool(driver, pool, &access);
        }
        // Slices are sorted by name, like a list from the API, so that their order makes no difference.
        self.slices.sort_by_key(|slice| slice["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    }

    fn node_selector(&mut self) -> Value {
        let requirement = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let mut expressions = match self.rng.u8(0..8) {
            0 => vec![requirement("zone", "In", &["a"])],
            1 => vec![requirement("zone", "In", &["b", "a"])],
            2 => vec![requirement("zone", "NotIn", &["a"])],
            3 => vec![requirement("rank", "Gt", &["0"])],
            4 => vec![json!({"key": "zone", "operator": "Exists"})],
            5 => vec![json!({"key": "none", "operator": "DoesNotExist"}), requirement("rank", "Lt", &["2"])],
            6 if self.themes.mistakes => vec![requirement("zone", "Near", &["a"])],
            _ => vec![requirement("zone", "In", &["a", "b"])],
        };
        if self.chance(10) {
            expressions.push(requirement("zone", "In", &["a", "b"]));
        }
        let mut term = json!({"matchExpressions": expressions});
        if self.chance(15) {
            term["matchFields"] = json!([requirement("metadata.name", "In", &["node-0"])]);
        }
        let mut terms = vec![term];
        if self.chance(5) {
            terms.push(json!({"matchExpressions": [requirement("zone", "In", &["b"])]}));
        }
        json!({"nodeSelectorTerms": terms})
    }

    /// Adds a pool, which may be inconsistent.
    fn pool(&mut self, driver: &str, pool: &str, access: &Value) {
        let generation = self.rng.i64(1..=2);
        let counters = self.themes.counters && self.chance(70);
        let with_devices = self.rng.usize(1..=2);
        let count = with_devices + usize::from(counters);
        let mut declared = i64::try_from(count).unwrap_or_default();
        if self.themes.disorder && self.chance(20) {
            declared += self.one(&["-1", "1"]).parse::<i64>().unwrap_or_default();
        }
        let mut next_device = 0;
        for number in 0..count {
            let is_counters = counters && number == with_devices;
            let mut spec = access.clone();
            spec["driver"] = driver.into();
            spec["pool"] = json!({"name": pool, "generation": generation, "resourceSliceCount": declared});
            if is_counters {
                spec["sharedCounters"] = self.counter_sets();
                if self.themes.disorder && self.chance(20) {
                    spec["pool"]["generation"] = (generation - 1).into();
                }
            } else {
                let amount = if self.chance(10) { 0 } else { self.rng.usize(3..=6) };
                let per_device = access["perDeviceNodeSelection"] == json!(true);
                spec["devices"] = (0..amount)
                    .map(|_| {
                        let name = format!("dev-{next_device}");
                        // A duplicate name makes the pool invalid.
                        let again = self.themes.disorder && self.chance(6);
                        next_device += usize::from(!again);
                        let device = self.device(&name, counters, per_device);
                        let shared = device["allowMultipleAllocations"] == json!(true);
                        self.devices.push((driver.to_owned(), pool.to_owned(), name, shared));
                        device
                    })
                    .collect();
                if self.themes.skips && self.chance(40) {
                    spec["skipNodeOperations"] = json!(["NodePrepareResources"]);
                }
            }
            let order = self.rng.u8(0..10);
            let name = format!("{order}-{}-{pool}-{number}", driver.split('.').next().unwrap_or_default());
            self.slices.push(json!({"metadata": {"name": name}, "spec": spec}));
            if self.themes.disorder && self.chance(15) {
                self.leftover(&name, driver, pool, generation, access);
            }
        }
    }

    /// Adds a slice of another generation, perhaps of another node.
    fn leftover(&mut self, name: &str, driver: &str, pool: &str, generation: i64, access: &Value) {
        let generation = if self.chance(60) { generation - 1 } else { generation + 1 };
        let mut spec = access.clone();
        if self.chance(30) && spec.get("nodeName").is_some() {
            spec["nodeName"] = "node-1".into();
        }
        spec["driver"] = driver.into();
        spec["pool"] =
            json!({"name": pool, "generation": generation, "resourceSliceCount": self.rng.i64(1..=2)});
        spec["devices"] = json!([self.device("dev-9", false, false)]);
        self.slices.push(json!({"metadata": {"name": format!("{name}-old")}, "spec": spec}));
    }

    fn rules(&mut self) -> Value {
        if !self.themes.taints || self.chance(60) {
            return json!([]);
        }
        let selector = match self.rng.u8(0..5) {
            0 => json!({}),
            1 => json!({"driver": DRIVERS[0]}),
            2 => json!({"pool": "node-0"}),
            _ => json!({"driver": DRIVERS[0], "pool": "node-0", "device": "dev-0"}),
        };
        json!([{"metadata": {"name": "rule"}, "spec": {"deviceSelector": selector, "taint": self.taint()}}])
    }

    fn classes(&mut self) -> Value {
        let opaque = |driver: &str, parameters: &str| json!({"opaque": {"driver": driver, "parameters": {"of": parameters}}});
        let mut gpu = json!({"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]});
        if self.chance(30) {
            gpu["config"] = json!([opaque(DRIVERS[0], "class")]);
        }
        let mut any = json!({});
        if self.chance(20) {
            any["config"] = json!([opaque(DRIVERS[1], "any"), opaque(DRIVERS[0], "any-2")]);
        }
        if self.themes.mistakes && self.chance(10) {
            any["selectors"] = json!([{"cel": {"expression": self.one(&["device.nothing", "1", "!"])}}]);
        }
        json!([
            {"metadata": {"name": "gpu"}, "spec": gpu},
            {"metadata": {"name": "any"}, "spec": any},
        ])
    }
}
