//! Devices and the counters they draw from.

use serde_json::{Map, Value, json};

use super::Made;

impl Made<'_> {
    pub(super) fn counter_sets(&mut self) -> Value {
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

    pub(super) fn device(&mut self, name: &str, counters: bool, per_device: bool) -> Value {
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

    pub(super) fn attributes(&mut self) -> Value {
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
            // CEL sees both spellings as one name, so that a device with both would have either value.
            attributes.remove("model");
            attributes.insert("gpu.example.com/model".to_owned(), json!({"string": "b"}));
        }
        if self.chance(10) {
            attributes.insert("numa".to_owned(), json!({"string": "0"}));
        }
        if self.themes.lists {
            let lists = [
                json!({"ints": [0, 1]}),
                json!({"ints": [1, 2]}),
                json!({"ints": [0, 2]}),
                json!({"ints": [1]}),
                json!({"int": 1}),
                json!({"strings": ["x", "y"]}),
                json!({"bools": [true]}),
                json!({"versions": ["1.0.0", "1.2.0"]}),
            ];
            attributes.insert("list".to_owned(), lists[self.rng.usize(0..lists.len())].clone());
        }
        if self.themes.derived && self.chance(40) {
            // An attribute that a request derives under this name takes precedence.
            attributes.insert("example.com/derived".to_owned(), json!({"int": self.rng.i64(0..=1)}));
        }
        if self.themes.mistakes && self.chance(3) {
            attributes.insert("empty".to_owned(), json!({}));
        }
        if self.themes.mistakes && self.chance(3) {
            attributes.insert("version".to_owned(), json!({"version": "v1"}));
        }
        attributes.into()
    }

    pub(super) fn capacity(&mut self) -> Value {
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

    pub(super) fn consumption(&mut self) -> Value {
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

    pub(super) fn taint(&mut self) -> Value {
        json!({
            "key": self.one(&["broken", "slow"]),
            "value": self.one(&["", "very"]),
            "effect": self.one(&["NoSchedule", "NoExecute", "None", "NoSchedule"]),
        })
    }
}
