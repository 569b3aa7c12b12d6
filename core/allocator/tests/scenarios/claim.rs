//! The claims to allocate, and claims that hold devices.

use serde_json::{Value, json};

use super::{DRIVERS, Made};

const OPAQUE: [&str; 3] = ["x", "y", "z"];

impl Made<'_> {
    pub(super) fn claims(&mut self) -> Vec<Value> {
        let claims = 0..if self.chance(60) { 1 } else { self.rng.usize(1..=3) };
        claims.map(|number| self.claim(number)).collect()
    }

    pub(super) fn claim(&mut self, number: usize) -> Value {
        let amount = if self.chance(4) {
            5
        } else if self.chance(15) {
            1
        } else {
            self.rng.usize(2..=4)
        };
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
    pub(super) fn names(&mut self, requests: &[Value]) -> Value {
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

    pub(super) fn constraint(&mut self, requests: &[Value]) -> Value {
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

    pub(super) fn request(&mut self, number: usize) -> Value {
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

    pub(super) fn asked(&mut self) -> Value {
        let mut asked = json!({"deviceClassName": self.one(&["gpu", "any", "any"])});
        if self.themes.mistakes {
            match self.rng.u8(0..40) {
                0 => asked["deviceClassName"] = "absent".into(),
                1 => asked["deviceClassName"] = "".into(),
                2 => asked["selectors"] = json!([{}]),
                _ => {}
            }
        }
        if self.chance(if self.themes.all { 30 } else { 5 }) {
            asked["allocationMode"] = "All".into();
        } else {
            asked["allocationMode"] = "ExactCount".into();
            let count = if self.chance(80) { 1 } else { self.rng.i64(1..=3) };
            asked["count"] =
                if self.chance(if self.themes.all { 8 } else { 2 }) { self.rng.i64(10..40) } else { count }
                    .into();
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

    pub(super) fn capacity_requests(&mut self) -> Value {
        let mut requests = json!({"memory": self.one(&["1Gi", "2Gi", "3Gi", "1500Mi", "512Mi", "5Gi", "8Gi", "3000000000"])});
        if self.chance(30) {
            requests["cores"] = self.one(&["1", "500m", "750m", "2", "600m"]).into();
        }
        if self.themes.mistakes && self.chance(10) {
            // Only one amount is wrong: the order in which upstream looks at several is undefined.
            return json!({"memory": self.one(&["-1Gi", "20E", "1m", "9223372036854775807"])});
        }
        if self.chance(5) {
            requests["absent"] = "1".into();
        }
        requests
    }

    pub(super) fn toleration(&mut self) -> Value {
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

    pub(super) fn selector(&mut self) -> &'static str {
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

    /// Claims that hold devices already.
    pub(super) fn holders(&mut self) -> Vec<Value> {
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
