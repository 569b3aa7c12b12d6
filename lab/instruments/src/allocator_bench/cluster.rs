//! The clusters that both sides fill, and the claims that fill them.

use serde_json::{Map, Value, json};

/// A cluster and the claims that fill it.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) nodes: usize,
    /// Devices of each node.
    pub(super) devices: usize,
    pub(super) shape: Shape,
    pub(super) pods: usize,
    /// Nodes tried for each Pod.
    pub(super) tried: usize,
    pub(super) asked: Asked,
    /// Devices that are allocated from the beginning, from the first node on.
    pub(super) held: usize,
    /// Every Pod is removed before the next one comes.
    pub(super) release: bool,
    /// A slice is published anew before each Pod.
    pub(super) change: bool,
    pub(super) pools: Pools,
    /// The work for each Pod is counted and has a budget.
    pub(super) count: bool,
    /// The published allocator to use instead of the one that it picks itself.
    pub(super) channel: Option<&'static str>,
}

/// The pools of the slices, of which every node has one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pools {
    OfEachNode,
    One,
}

/// The devices of a node.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// The values of `numa` cycle through this number.
    Whole { numa: usize },
    /// This number of consecutive devices has the same value of `numa`.
    Groups { of: usize },
    /// The capacity of a device can be shared.
    Shared,
    /// The devices are partitions of a card: the whole, two halves, and quarters.
    Parts,
}

/// The claim of a Pod.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    Devices(usize),
    /// One device that matches a selector.
    Selected,
    /// One device that matches a selector, which differs for every Pod.
    SelectedAnew,
    /// This number of devices with the same `numa`.
    Alike(usize),
    /// This number of requests for one device each.
    Requests(usize),
    /// A prioritized list: a device that does not exist, or else any device.
    FirstAvailable,
    /// A share of a device.
    Share,
    /// A quarter of a card.
    Quarter,
    /// This number of requests whose devices differ in `numa`.
    Distinct(usize),
    /// Every device that matches 32 selectors, each of which costs nearly what Kubernetes allows.
    Expensive,
}

const PLAIN: Case = Case {
    name: "one device of ten, filled with 5 000 claims",
    nodes: 500,
    devices: 10,
    shape: Shape::Whole { numa: 4 },
    pods: 5_000,
    tried: 100,
    asked: Asked::Devices(1),
    held: 0,
    release: false,
    change: false,
    pools: Pools::OfEachNode,
    count: false,
    channel: None,
};

const STEADY: Case = Case { name: "coming and going, empty", pods: 500, release: true, ..PLAIN };

pub(super) const CASES: [Case; 18] = [
    PLAIN,
    Case { name: "the same, experimental", pods: 1_000, channel: Some("experimental"), ..PLAIN },
    STEADY,
    Case { name: "coming and going, half full", held: 2_500, ..STEADY },
    Case { name: "coming and going, full", held: 4_990, tried: 500, ..STEADY },
    Case { name: "coming and going, a slice changes each time", change: true, ..STEADY },
    Case { name: "a selector", asked: Asked::Selected, pods: 1_000, ..PLAIN },
    Case { name: "a selector of its own for every Pod", asked: Asked::SelectedAnew, ..STEADY },
    Case { name: "four alike of sixteen", devices: 16, asked: Asked::Alike(4), pods: 300, ..PLAIN },
    Case { name: "a prioritized list", asked: Asked::FirstAvailable, pods: 1_000, ..PLAIN },
    Case {
        name: "shares of capacity",
        devices: 4,
        shape: Shape::Shared,
        asked: Asked::Share,
        pods: 1_000,
        ..PLAIN
    },
    Case {
        name: "quarters of cards",
        devices: 7,
        shape: Shape::Parts,
        asked: Asked::Quarter,
        pods: 1_000,
        ..PLAIN
    },
    Case {
        name: "eight requests for seven devices",
        nodes: 10,
        devices: 7,
        pods: 10,
        tried: 5,
        asked: Asked::Requests(8),
        ..PLAIN
    },
    Case {
        name: "twelve requests for eleven devices",
        nodes: 1,
        devices: 11,
        pods: 1,
        tried: 1,
        asked: Asked::Requests(12),
        ..PLAIN
    },
    Case {
        name: "the ninth group of 32 is the first with enough",
        nodes: 1,
        devices: 288,
        shape: Shape::Groups { of: 32 },
        pods: 1,
        tried: 1,
        // Half of each of the first eight groups is taken.
        asked: Asked::Alike(17),
        ..PLAIN
    },
    // What hostile hands write.
    Case {
        name: "one pool of 2 000 slices, one of which changes each time",
        nodes: 2_000,
        pools: Pools::One,
        change: true,
        pods: 10,
        ..STEADY
    },
    Case {
        name: "twelve requests for eleven distinct values",
        nodes: 1,
        devices: 44,
        shape: Shape::Whole { numa: 11 },
        pods: 1,
        tried: 1,
        asked: Asked::Distinct(12),
        count: true,
        ..PLAIN
    },
    Case {
        name: "32 selectors near the limit of cost",
        nodes: 1,
        devices: 32,
        pods: 1,
        tried: 1,
        asked: Asked::Expensive,
        count: true,
        ..PLAIN
    },
];

impl Case {
    /// The arguments of the command of both sides.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--tried".to_owned(), self.tried.to_string()];
        let flags = [("--release", self.release), ("--change", self.change)];
        arguments.extend(flags.iter().filter(|(_, on)| *on).map(|(flag, _)| (*flag).to_owned()));
        arguments
    }

    pub(super) fn scenario(&self) -> Value {
        let nodes: Vec<Value> =
            (0..self.nodes).map(|number| json!({"metadata": {"name": node(number)}})).collect();
        let claims = (0..self.pods).map(|pod| {
            let metadata = json!({"namespace": "default", "name": claim(pod), "uid": format!("uid-{pod}")});
            json!({"metadata": metadata, "spec": {"devices": self.asked.devices(pod)}})
        });
        let class = json!({"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]});
        // The feature gates that are on by default in Kubernetes 1.37.
        let gates = [
            "DRAAdminAccess",
            "DRAConsumableCapacity",
            "DRADeviceBindingConditions",
            "DRADeviceTaintRules",
            "DRADeviceTaints",
            "DRAFractionalCapacityRange",
            "DRAPartitionableDevices",
            "DRAPrioritizedList",
        ];
        let slices: Vec<Value> = (0..self.nodes).flat_map(|number| self.slices(number)).collect();
        json!({
            "nodes": nodes,
            "resourceSlices": slices,
            "deviceClasses": [{"metadata": {"name": "gpu"}, "spec": class}],
            "resourceClaims": claims.chain(self.holders()).collect::<Vec<_>>(),
            "allocate": (0..self.pods).map(|pod| format!("default/{}", claim(pod))).collect::<Vec<_>>(),
            "candidates": (0..self.nodes).map(node).collect::<Vec<_>>(),
            "featureGates": gates.iter().map(|gate| ((*gate).to_owned(), true.into()))
                .collect::<Map<String, Value>>(),
        })
    }

    /// An allocated claim for each device that is allocated from the beginning.
    fn holders(&self) -> impl Iterator<Item = Value> {
        let taken: Vec<(usize, usize)> = match self.shape {
            // Half of each of the first eight groups.
            Shape::Groups { of } => {
                (0..8 * of).filter(|device| device % of >= of / 2).map(|device| (0, device)).collect()
            }
            _ => (0..self.held).map(|number| (number / self.devices, number % self.devices)).collect(),
        };
        taken.into_iter().map(|(on, device)| {
            let result = json!({"request": "r", "driver": DRIVER, "pool": node(on), "device": gpu(device)});
            let name = format!("held-{on}-{device}");
            json!({
                "metadata": {"namespace": "other", "name": name, "uid": name},
                "spec": {"devices": {"requests": [{"name": "r"}]}},
                "status": {"allocation": {"devices": {"results": [result]}}},
            })
        })
    }

    fn slices(&self, number: usize) -> Vec<Value> {
        let counters = matches!(self.shape, Shape::Parts);
        let slice = |name: String, field: &str, content: Value| {
            let own = (node(number), 1 + usize::from(counters));
            let (pool, count) = if self.pools == Pools::One { ("all".to_owned(), self.nodes) } else { own };
            let mut slice = json!({"metadata": {"name": name}, "spec": {
                "driver": DRIVER,
                "nodeName": node(number),
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
            }});
            slice["spec"][field] = content;
            slice
        };
        let mut devices: Vec<Value> = (0..self.devices).map(|number| self.shape.device(number)).collect();
        if self.pools == Pools::One {
            for (device, of) in devices.iter_mut().enumerate() {
                of["name"] = json!(format!("{}-of-{number}", gpu(device)));
            }
        }
        let mut slices = vec![slice(format!("slice-{number:04}"), "devices", devices.into())];
        if counters {
            let card =
                json!([{"name": "card", "counters": {"memory": {"value": "80Gi"}, "slots": {"value": "4"}}}]);
            slices.push(slice(format!("slice-{number:04}-counters"), "sharedCounters", card));
        }
        slices
    }
}

const DRIVER: &str = "gpu.example.com";

fn node(number: usize) -> String {
    format!("node-{number:04}")
}

fn gpu(number: usize) -> String {
    format!("gpu-{number}")
}

fn claim(pod: usize) -> String {
    format!("claim-{pod}")
}

impl Shape {
    fn device(self, number: usize) -> Value {
        let numa = match self {
            Self::Whole { numa } => number % numa,
            Self::Groups { of } => number / of,
            Self::Shared | Self::Parts => 0,
        };
        let mut device = json!({
            "name": gpu(number),
            "attributes": {
                "uuid": {"string": format!("uuid-{number}")},
                "numa": {"int": numa},
                "driverVersion": {"version": "1.2.0"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        });
        if let Self::Shared = self {
            device["allowMultipleAllocations"] = json!(true);
            device["capacity"]["memory"]["requestPolicy"] =
                json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}});
        }
        if let Self::Parts = self {
            let (name, parts) = match number {
                0 => ("whole", 1),
                1 | 2 => ("half", 2),
                _ => ("quarter", 4),
            };
            device["attributes"]["profile"] = json!({"string": name});
            device["consumesCounters"] = json!([{"counterSet": "card", "counters": {
                "memory": {"value": format!("{}Gi", 80 / parts)}, "slots": {"value": (4 / parts).to_string()}}}]);
        }
        device
    }
}

impl Asked {
    /// `spec.devices` of the claim of a Pod.
    fn devices(self, pod: usize) -> Value {
        let exactly = |count: usize, selector: Option<String>| {
            let mut asked = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count});
            if let Some(expression) = selector {
                asked["selectors"] = json!([{"cel": {"expression": expression}}]);
            }
            asked
        };
        let one = |asked: Value| json!({"requests": [{"name": "request", "exactly": asked}]});
        let is = |profile: &str| format!("device.attributes['{DRIVER}'].?profile.orValue('') == '{profile}'");
        match self {
            Self::Devices(count) => one(exactly(count, None)),
            Self::Selected => one(exactly(1, Some(SELECTOR.to_owned()))),
            Self::SelectedAnew => one(exactly(1, Some(format!("{SELECTOR} && 'pod-{pod}' != ''")))),
            Self::Alike(count) => {
                let mut devices = one(exactly(count, None));
                devices["constraints"] = json!([{"matchAttribute": format!("{DRIVER}/numa")}]);
                devices
            }
            Self::Requests(count) => {
                let request =
                    |number: usize| json!({"name": format!("request-{number}"), "exactly": exactly(1, None)});
                json!({"requests": (0..count).map(request).collect::<Vec<_>>()})
            }
            Self::FirstAvailable => {
                let named = |name: &str, mut asked: Value| {
                    asked["name"] = json!(name);
                    asked
                };
                let subs = [named("large", exactly(1, Some(is("large")))), named("any", exactly(1, None))];
                json!({"requests": [{"name": "request", "firstAvailable": subs}]})
            }
            Self::Share => {
                let mut asked = exactly(1, None);
                asked["capacity"] = json!({"requests": {"memory": "10Gi"}});
                one(asked)
            }
            Self::Quarter => one(exactly(1, Some(is("quarter")))),
            Self::Distinct(count) => {
                let mut devices = Self::Requests(count).devices(pod);
                devices["constraints"] = json!([{"distinctAttribute": format!("{DRIVER}/numa")}]);
                devices
            }
            Self::Expensive => {
                let selector = |number: usize| {
                    let loops =
                        format!("lists.range(700).all(x, lists.range(50).all(y, x + y + {number} >= 0))");
                    json!({"cel": {"expression": format!("{loops} && device.driver == '{DRIVER}'")}})
                };
                let selectors: Vec<Value> = (0..32).map(selector).collect();
                one(json!({"deviceClassName": "gpu", "allocationMode": "All", "selectors": selectors}))
            }
        }
    }
}

const SELECTOR: &str = "device.attributes['gpu.example.com'].driverVersion.compareTo(semver('1.0.0')) >= 0 \
    && device.capacity['gpu.example.com'].memory.compareTo(quantity('1Mi')) >= 0";
