//! Small clusters made at random, biased to where rules meet.

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
const OPAQUE: [&str; 3] = ["x", "y", "z"];

/// What a scenario is about; the rest is plain.
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
    /// Pools that are not as they should be.
    disorder: bool,
    /// Objects that are not as they should be.
    mistakes: bool,
    held: bool,
}

struct Made<'a> {
    rng: &'a mut Rng,
    themes: Themes,
    nodes: Vec<String>,
    /// Driver, pool, device, and whether it may be shared.
    devices: Vec<(String, String, String, bool)>,
    slices: Vec<Value>,
}

/// A scenario.
pub(super) fn scenario(rng: &mut Rng) -> Value {
    let mut theme = |percent: u8| rng.u8(0..100) < percent;
    let themes = Themes {
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
        disorder: theme(5),
        mistakes: theme(9),
        held: theme(70),
    };
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
        // As a list from the API is sorted, so that it does not matter which slice is first.
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

    /// One pool, which may be in disorder.
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
                        // A name twice makes the pool invalid.
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

    /// A slice of another generation, perhaps of another node.
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

    fn counter_sets(&mut self) -> Value {
        let mut sets = vec![json!({"name": "gpu-0", "counters": {
            "memory": {"value": self.one(&["4Gi", "8Gi", "6Gi"])}, "slices": {"value": self.one(&["2", "3", "7"])},
        }})];
        if self.chance(40) {
            let value = self.one(&["1", "2", "100E", "20000000000000000000"]);
            sets.push(json!({"name": "gpu-1", "counters": {"slices": {"value": value}}}));
        }
        if self.themes.disorder && self.chance(5) {
            sets.push(json!({"name": "gpu-0", "counters": {"slices": {"value": "1"}}}));
        }
        sets.into()
    }

    fn device(&mut self, name: &str, counters: bool, per_device: bool) -> Value {
        let mut device = json!({"name": name, "attributes": self.attributes()});
        if self.chance(70) || self.themes.sharing {
            device["capacity"] = self.capacity();
        }
        if self.themes.sharing && self.chance(60) {
            device["allowMultipleAllocations"] = true.into();
        }
        if counters && self.chance(80) {
            device["consumesCounters"] = self.consumption();
        }
        if per_device {
            match self.rng.u8(0..5) {
                0 => device["allNodes"] = true.into(),
                1 => device["nodeName"] = self.one(&["node-0", "node-1"]).into(),
                2 => {}
                _ => device["nodeSelector"] = self.node_selector(),
            }
        }
        if self.themes.taints && self.chance(50) {
            device["taints"] = (0..self.rng.usize(1..=2)).map(|_| self.taint()).collect();
        }
        if self.themes.binding {
            if self.chance(40) {
                device["bindingConditions"] = json!(["ready"]);
                device["bindingFailureConditions"] = json!(["broken"]);
            }
            if self.chance(30) {
                device["bindsToNode"] = true.into();
            }
        }
        device
    }

    fn attributes(&mut self) -> Value {
        let mut attributes = Map::new();
        if self.chance(90) {
            attributes.insert("model".to_owned(), json!({"string": self.one(&["a", "b"])}));
        }
        if self.chance(80) {
            attributes.insert("numa".to_owned(), json!({"int": self.rng.i64(0..=2)}));
        }
        if self.chance(50) {
            attributes.insert("flag".to_owned(), json!({"bool": self.rng.bool()}));
        }
        if self.chance(60) {
            let version = self.one(&["1.0.0", "1.2.0", "1.2.0+build", "2.0.0-rc.1"]);
            attributes.insert("version".to_owned(), json!({"version": version}));
        }
        if self.chance(50) {
            attributes.insert("example.com/root".to_owned(), json!({"string": self.one(&["r0", "r1"])}));
        }
        if self.chance(10) {
            // Both spellings at once would be one name to CEL, with one value or the other.
            attributes.remove("model");
            attributes.insert("gpu.example.com/model".to_owned(), json!({"string": "b"}));
        }
        if self.chance(10) {
            attributes.insert("numa".to_owned(), json!({"string": "0"}));
        }
        if self.themes.lists {
            let lists = [
                json!({"ints": [0, 1]}),
                json!({"ints": [1]}),
                json!({"int": 1}),
                json!({"strings": ["x", "y"]}),
                json!({"bools": [true]}),
                json!({"versions": ["1.0.0", "1.2.0"]}),
            ];
            attributes.insert("list".to_owned(), lists[self.rng.usize(0..lists.len())].clone());
        }
        if self.themes.mistakes && self.chance(3) {
            attributes.insert("empty".to_owned(), json!({}));
        }
        if self.themes.mistakes && self.chance(3) {
            attributes.insert("version".to_owned(), json!({"version": "v1"}));
        }
        attributes.into()
    }

    fn capacity(&mut self) -> Value {
        let mut memory = json!({"value": self.one(&["4Gi", "8Gi", "10Gi"])});
        if self.themes.sharing && self.chance(60) {
            memory["requestPolicy"] = match self.rng.u8(0..5) {
                0 => json!({"default": "1Gi"}),
                1 => json!({"default": "2Gi", "validValues": ["1Gi", "2Gi", "4Gi"]}),
                2 => json!({"default": "1Gi", "validRange": {"min": "1Gi", "max": "6Gi"}}),
                3 => json!({"default": "0", "validRange": {"min": "0"}}),
                _ => json!({"default": "1Gi", "validRange": {"min": "1Gi", "max": "7Gi", "step": "2Gi"}}),
            };
        }
        let mut capacity = json!({"memory": memory});
        if self.chance(40) {
            let mut cores = json!({"value": self.one(&["2", "4", "1500m"])});
            if self.themes.sharing && self.chance(50) {
                cores["requestPolicy"] = match self.rng.u8(0..3) {
                    0 => json!({"default": "1", "validRange": {"min": "500m", "step": "250m"}}),
                    1 => json!({"default": "1"}),
                    _ => json!({"default": "1", "validRange": {"min": "1", "max": "3", "step": "1"}}),
                };
            }
            capacity["cores"] = cores;
        }
        capacity
    }

    fn consumption(&mut self) -> Value {
        let mut consumption = json!({"counterSet": "gpu-0", "counters": {
            "memory": {"value": self.one(&["1Gi", "2Gi", "4Gi"])},
        }});
        if self.chance(50) {
            consumption["counters"]["slices"] = json!({"value": self.one(&["1", "2", "3"])});
        }
        if self.themes.disorder && self.chance(4) {
            consumption["counters"]["unknown"] = json!({"value": "1"});
        }
        if self.themes.groups && self.chance(70) {
            let groups: &[&str] = match self.rng.u8(0..3) {
                0 => &["mig"],
                1 => &["vgpu"],
                _ => &["mig", "vgpu"],
            };
            consumption["compatibilityGroups"] = json!(groups);
        }
        let mut all = vec![consumption];
        if self.themes.disorder && self.chance(4) {
            all.push(json!({"counterSet": "unknown", "counters": {"slices": {"value": "1"}}}));
        }
        all.into()
    }

    fn taint(&mut self) -> Value {
        json!({
            "key": self.one(&["broken", "slow"]),
            "value": self.one(&["", "very"]),
            "effect": self.one(&["NoSchedule", "NoExecute", "None", "NoSchedule"]),
        })
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

    fn claims(&mut self) -> Vec<Value> {
        let claims = 0..if self.chance(60) { 1 } else { self.rng.usize(1..=3) };
        claims.map(|number| self.claim(number)).collect()
    }

    fn claim(&mut self, number: usize) -> Value {
        let amount = if self.chance(4) { 5 } else if self.chance(15) { 1 } else { self.rng.usize(2..=4) };
        let requests: Vec<Value> = (0..amount).map(|number| self.request(number)).collect();
        let mut devices = json!({"requests": requests});
        if self.themes.constraints {
            let constraints = (0..if self.chance(80) { 1 } else { 2 }).map(|_| self.constraint(&requests));
            devices["constraints"] = constraints.collect();
        }
        if self.chance(30) {
            let config = (0..self.rng.usize(1..=2)).map(|_| {
                let mut entry =
                    json!({"opaque": {"driver": DRIVERS[0], "parameters": {"of": self.one(&OPAQUE)}}});
                if self.chance(60) {
                    entry["requests"] = self.names(&requests);
                }
                entry
            });
            devices["config"] = config.collect();
        }
        json!({
            "metadata": {"namespace": "default", "name": format!("claim-{number}"), "uid": format!("uid-{number}")},
            "spec": {"devices": devices},
        })
    }

    /// Names of some requests, or of their sub-requests.
    fn names(&mut self, requests: &[Value]) -> Value {
        let names = requests.iter().filter_map(|request| {
            let name = request["name"].as_str().unwrap_or_default();
            let subs = request["firstAvailable"].as_array().map_or(0, Vec::len);
            if !self.chance(60) {
                return None;
            }
            Some(if subs > 0 && self.chance(50) { format!("{name}/sub-0") } else { name.to_owned() })
        });
        let names: Vec<String> = names.collect();
        if names.is_empty() { json!(["req-0"]) } else { names.into() }
    }

    fn constraint(&mut self, requests: &[Value]) -> Value {
        let mut attributes = vec![
            "gpu.example.com/model",
            "gpu.example.com/numa",
            "gpu.example.com/version",
            "example.com/root",
        ];
        if self.themes.lists {
            attributes.extend(["gpu.example.com/list"; 3]);
        }
        if self.themes.derived {
            attributes.extend(["example.com/derived"; 3]);
        }
        if self.chance(10) {
            attributes.push("gpu.example.com/nothing");
        }
        let kind = if self.chance(75) { "matchAttribute" } else { "distinctAttribute" };
        let mut constraint = json!({kind: self.one(&attributes)});
        if self.chance(50) {
            constraint["requests"] = self.names(requests);
        }
        if self.themes.mistakes && self.chance(3) {
            return json!({});
        }
        constraint
    }

    fn request(&mut self, number: usize) -> Value {
        let name = format!("req-{number}");
        if self.chance(20) {
            let subs = 0..self.rng.usize(1..=3);
            let subs = subs.map(|number| {
                let mut sub = self.asked();
                sub["name"] = format!("sub-{number}").into();
                sub
            });
            return json!({"name": name, "firstAvailable": subs.collect::<Vec<_>>()});
        }
        let mut asked = self.asked();
        if self.themes.admin && self.chance(40) {
            asked["adminAccess"] = self.chance(85).into();
        }
        json!({"name": name, "exactly": asked})
    }

    fn asked(&mut self) -> Value {
        let mut asked = json!({"deviceClassName": self.one(&["gpu", "any", "any"])});
        if self.themes.mistakes {
            match self.rng.u8(0..40) {
                0 => asked["deviceClassName"] = "absent".into(),
                1 => asked["deviceClassName"] = "".into(),
                2 => asked["selectors"] = json!([{}]),
                _ => {}
            }
        }
        if self.chance(5) {
            asked["allocationMode"] = "All".into();
        } else {
            asked["allocationMode"] = "ExactCount".into();
            let count = if self.chance(80) { 1 } else { self.rng.i64(1..=3) };
            asked["count"] = if self.chance(2) { self.rng.i64(10..40) } else { count }.into();
            if self.themes.mistakes && self.chance(3) {
                asked["allocationMode"] = "Some".into();
            }
        }
        if self.chance(35) {
            let selectors = 0..self.rng.usize(1..=2);
            asked["selectors"] = selectors.map(|_| json!({"cel": {"expression": self.selector()}})).collect();
        }
        if self.themes.taints && self.chance(60) {
            asked["tolerations"] = (0..self.rng.usize(1..=2)).map(|_| self.toleration()).collect();
        }
        if self.themes.sharing && self.chance(60) {
            asked["capacity"] = json!({"requests": self.capacity_requests()});
        }
        if self.themes.derived && self.chance(60) {
            let expression = self.one(&[
                "device.attributes['gpu.example.com'].model",
                "device.attributes['gpu.example.com'].numa",
                "device.driver",
                "device.attributes['gpu.example.com'].?numa.orValue(7)",
                "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('4Gi'))",
            ]);
            asked["derivedAttributes"] = json!([{"name": "example.com/derived", "expression": expression}]);
        }
        asked
    }

    fn capacity_requests(&mut self) -> Value {
        let mut requests = json!({"memory": self.one(&["1Gi", "2Gi", "3Gi", "1500Mi", "512Mi", "5Gi", "8Gi", "3000000000"])});
        if self.chance(30) {
            requests["cores"] = self.one(&["1", "500m", "750m", "2", "600m"]).into();
        }
        if self.themes.mistakes && self.chance(10) {
            // One alone: which of several is looked at first is not said upstream.
            return json!({"memory": self.one(&["-1Gi", "20E", "1m"])});
        }
        if self.chance(5) {
            requests["absent"] = "1".into();
        }
        requests
    }

    fn toleration(&mut self) -> Value {
        let mut toleration = json!({});
        if self.chance(70) {
            toleration["key"] = self.one(&["broken", "slow"]).into();
        }
        if self.chance(80) {
            toleration["operator"] = self.one(&["Exists", "Equal", "", "Like"]).into();
        }
        if self.chance(30) {
            toleration["value"] = "very".into();
        }
        if self.chance(40) {
            toleration["effect"] = self.one(&["NoSchedule", "NoExecute"]).into();
        }
        toleration
    }

    fn selector(&mut self) -> &'static str {
        if self.themes.mistakes && self.chance(8) {
            return self.one(&[
                "device.attributes['gpu.example.com'].model",
                "device.nothing == 1",
                "device.attributes['gpu.example.com'].model + 'x'",
                "device.driver",
                "device.driver == 1",
            ]);
        }
        self.one(&[
            "device.attributes['gpu.example.com'].?model.orValue('') == 'a'",
            "device.attributes['gpu.example.com'].?model.orValue('') != 'b'",
            "'model' in device.attributes['gpu.example.com']",
            "has(device.attributes['gpu.example.com'].numa)",
            "device.attributes['gpu.example.com'].?numa.orValue(0) == 0",
            "device.capacity['gpu.example.com'].?memory.orValue(quantity('0')).compareTo(quantity('8Gi')) >= 0",
            "device.attributes['example.com'].?root.orValue('r0') == 'r0'",
            "device.allowMultipleAllocations",
            "!device.allowMultipleAllocations",
            "device.attributes['gpu.example.com'].?version.orValue(semver('0.0.1')).isGreaterThan(semver('1.1.0'))",
            "device.driver.startsWith('gpu')",
            "true",
        ])
    }

    /// Claims that hold something already.
    fn holders(&mut self) -> Vec<Value> {
        if !self.themes.held || self.devices.is_empty() {
            return Vec::new();
        }
        let mut exclusive: Vec<usize> = Vec::new();
        let holders = 0..self.rng.usize(1..=3);
        holders
            .map(|number| {
                let results = (0..self.rng.usize(1..=2)).filter_map(|place| {
                    let chosen = self.rng.usize(0..self.devices.len());
                    let (driver, pool, device, shared) = self.devices.get(chosen)?.clone();
                    let mut result = json!({"request": "held", "driver": driver, "pool": pool, "device": device});
                    if self.themes.admin && self.chance(20) {
                        result["adminAccess"] = true.into();
                    } else if shared && self.chance(85) || (self.themes.sharing && self.chance(4)) {
                        result["shareID"] = format!("share-{number}-{place}").into();
                        if self.chance(90) {
                            let memory = self.one(&["1Gi", "2Gi", "4Gi", "3Gi"]);
                            result["consumedCapacity"] = json!({"memory": memory});
                        }
                    } else if exclusive.contains(&chosen) {
                        return None;
                    } else {
                        exclusive.push(chosen);
                    }
                    if self.chance(5) {
                        result["device"] = "gone".into();
                    }
                    Some(result)
                });
                let results: Vec<Value> = results.collect();
                let mut allocation = json!({"devices": {"results": results}});
                if self.chance(60) {
                    let selector = json!([{"matchFields": [
                        {"key": "metadata.name", "operator": "In", "values": [self.one(&["node-0", "node-1"])]},
                    ]}]);
                    allocation["nodeSelector"] = json!({"nodeSelectorTerms": selector});
                }
                let name = format!("held-{number}");
                json!({
                    "metadata": {"namespace": "other", "name": name, "uid": format!("held-{number}")},
                    "spec": {"devices": {"requests": [{"name": "held"}]}},
                    "status": {"allocation": allocation},
                })
            })
            .collect()
    }
}
