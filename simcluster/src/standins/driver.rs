//! The driver of simulated devices. It publishes a slice for every node, and publishes a deleted slice again.

use serde_json::{Value, json};

use super::client::Client;
use super::follow::{Event, Follow};
use crate::api::{ApiServer, meta};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// A driver with the same number of devices on every node.
pub struct Driver {
    client: Client,
    name: String,
    devices: usize,
    /// The cpus that each device takes from its node, if the slices say so.
    cpus: Option<String>,
}

impl Driver {
    /// Creates a driver with this name and number of devices per node.
    pub fn new(server: ApiServer, name: &str, devices: usize) -> Self {
        let client = Client::new(server, "driver", "simcluster-driver/1");
        Self { client, name: name.to_owned(), devices, cpus: None }
    }

    /// Makes the slices say that each device takes so many cpus from its node (KEP-5517, Kubernetes 1.37).
    #[must_use]
    pub fn costing(self, cpus: &str) -> Self {
        Self { cpus: Some(cpus.to_owned()), ..self }
    }

    /// Returns the slice of a node.
    pub fn slice(&self, node: &str) -> Value {
        let devices: Vec<Value> = (0..self.devices)
            .map(|number| {
                let mut device =
                    json!({"name": format!("dev-{number}"), "attributes": {"index": {"int": number}}});
                if let Some(cpus) = &self.cpus {
                    device["nodeAllocatableResources"] =
                        json!({"cpu": {"mapping": {"deviceMultiplier": cpus}}});
                }
                device
            })
            .collect();
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": format!("{node}-{}", self.name)},
            "spec": {
                "driver": self.name, "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices,
            },
        })
    }

    /// Publishes the slices of all nodes for as long as it is polled.
    pub async fn run(self) {
        let mut nodes = Follow::new(self.client.clone(), "/api/v1/nodes");
        let mut slices = Follow::new(self.client.clone(), SLICES);
        loop {
            tokio::select! {
                biased;
                event = nodes.next() => if let Event::Applied(node) = event {
                    self.publish(meta::text(&node, "name"), &slices).await;
                },
                event = slices.next() => if let Event::Deleted(slice) = event
                    && slice["spec"]["driver"] == *self.name
                    && let Some(node) = slice["spec"]["nodeName"].as_str()
                    && nodes.get("", node).is_some()
                {
                    self.publish(node, &slices).await;
                },
            }
        }
    }

    async fn publish(&self, node: &str, slices: &Follow) {
        let slice = self.slice(node);
        if slices.get("", meta::text(&slice, "name")).is_none() {
            // An existing slice has the same content.
            self.client.create(SLICES, &slice).await;
        }
    }
}
