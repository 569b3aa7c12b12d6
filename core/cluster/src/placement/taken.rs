//! Host ports and extended resources: what a Pod takes of its node, devices and amounts aside, and what the Pods of a node take of it.

use std::collections::BTreeMap;

use dragoman_objects::{Name, Pod, PodSpec};

/// The host ports and the extended resources that a Pod takes of its node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Takes {
    pub(super) ports: Box<[HostPort]>,
    /// In the order of their names.
    pub(super) extended: Box<[(Name, i64)]>,
}

/// A port of a node that a Pod takes: number, protocol and address. An address of `0.0.0.0` is all of
/// them.
// Sorted by number first: only ports of one number can be the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    pub(super) number: u16,
    pub(super) protocol: Name,
    pub(super) address: Name,
}

/// Number, ports and extended resources of the Pods on a node that have not ended: what they take of it, devices and amounts
/// aside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    pub(super) pods: usize,
    /// The number of Pods that have each port.
    ports: BTreeMap<HostPort, usize>,
    /// Sums: a tenant may request any number on a node of its choice.
    pub(super) extended: BTreeMap<Name, i128>,
}

impl Taken {
    /// Adds a Pod that takes this, if anything.
    pub fn add(&mut self, takes: Option<&Takes>) {
        self.pods += 1;
        for port in takes.into_iter().flat_map(|takes| &takes.ports) {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
        for (name, units) in takes.into_iter().flat_map(|takes| &takes.extended) {
            let sum = self.extended.entry(name.clone()).or_default();
            *sum += i128::from(*units);
        }
    }

    /// Takes away a Pod that was added with this.
    pub fn remove(&mut self, takes: Option<&Takes>) {
        self.pods = self.pods.saturating_sub(1);
        for (name, units) in takes.into_iter().flat_map(|takes| &takes.extended) {
            if let Some(sum) = self.extended.get_mut(name) {
                *sum -= i128::from(*units);
                if *sum <= 0 {
                    self.extended.remove(name);
                }
            }
        }
        for port in takes.into_iter().flat_map(|takes| &takes.ports) {
            if let Some(pods) = self.ports.get_mut(port) {
                *pods -= 1;
                if *pods == 0 {
                    self.ports.remove(port);
                }
            }
        }
    }

    pub(super) fn has(&self, port: &HostPort) -> bool {
        let first = HostPort { number: port.number, protocol: "".into(), address: "".into() };
        let mut same = self.ports.range(first..).take_while(|(taken, _)| taken.number == port.number);
        same.any(|(taken, _)| taken.overlaps(port))
    }

    /// Whether there is no Pod.
    pub fn is_nothing(&self) -> bool {
        self.pods == 0
    }
}

impl Takes {
    /// Returns what a Pod takes.
    pub fn of(pod: &Pod) -> Self {
        Self {
            ports: host_ports(&pod.spec).collect(),
            extended: pod.extended_resources().into_iter().collect(),
        }
    }

    /// Whether it is nothing, as of most Pods.
    pub fn is_nothing(&self) -> bool {
        self.ports.is_empty() && self.extended.is_empty()
    }
}

/// The ports that a Pod takes of its node: those of containers that run as long as the Pod.
fn host_ports(spec: &PodSpec) -> impl Iterator<Item = HostPort> {
    let sidecars = spec.init_containers.iter();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.items());
    let or = |text: &Name, default: &str| if text.is_empty() { default.into() } else { text.clone() };
    ports.filter_map(move |port| {
        // The API server sets the host port of Pods on the network of their node.
        let is_unset = port.host_port == 0 && spec.host_network;
        let number = if is_unset { port.container_port } else { port.host_port };
        let (address, protocol) = (or(&port.host_ip, "0.0.0.0"), or(&port.protocol, "TCP"));
        (number > 0).then_some(HostPort { number, protocol, address })
    })
}

impl HostPort {
    fn overlaps(&self, other: &Self) -> bool {
        let all = |port: &Self| &*port.address == "0.0.0.0";
        (&self.protocol, self.number) == (&other.protocol, other.number)
            && (self.address == other.address || all(self) || all(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_as_long_as_a_pod_has_it() {
        let port = |number| HostPort { number, protocol: "TCP".into(), address: "0.0.0.0".into() };
        let both = |ports: &[HostPort], gpus| Takes {
            ports: ports.into(),
            extended: [("example.com/gpu".into(), gpus)].into(),
        };
        let mut taken = Taken::default();
        taken.add(Some(&both(&[port(80)], 1)));
        taken.add(Some(&both(&[port(80), port(443)], 2)));
        taken.remove(Some(&both(&[port(80), port(443)], 2)));
        let left = Taken {
            pods: 1,
            ports: [(port(80), 1)].into(),
            extended: [("example.com/gpu".into(), 1)].into(),
        };
        assert_eq!(taken, left, "the other Pod has it");
        taken.remove(Some(&both(&[port(80)], 1)));
        assert_eq!(taken, Taken::default());
    }
}
