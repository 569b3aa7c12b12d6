//! The dashboard of devices: their numbers, the claims that hold them, and the Pods that wait.

use super::{Dashboard, Row, series, stat};

pub(super) const DASHBOARD: Dashboard = Dashboard {
    file: "devices",
    title: "Dragoman / Devices",
    description: "Devices by driver, class, pool and namespace, claims by state, Pods that wait, and what claims take from nodes.",
    rows: &[
        Row {
            title: "Now",
            panels: &[
                stat(
                    "Devices",
                    "Devices that drivers publish",
                    "short",
                    &[("{{driver}}", "max by (driver) (dragoman_devices{state=\"published\"})")],
                ),
                stat(
                    "In use",
                    "Share of the devices that a claim holds",
                    "percentunit",
                    &[(
                        "{{driver}}",
                        "max by (driver) (dragoman_devices{state=\"allocated\"}) / (max by (driver) (dragoman_devices{state=\"published\"}) > 0)",
                    )],
                ),
                stat(
                    "Idle",
                    "Devices that a claim holds and no Pod uses",
                    "short",
                    &[("{{driver}}", "max by (driver) (dragoman_devices{state=\"idle\"})")],
                ),
                stat(
                    "Waiting Pods",
                    "Pods behind a closed gate",
                    "short",
                    &[("gated", "sum(max by (reason) (dragoman_gates_closed))")],
                ),
                stat(
                    "Overcommitted nodes",
                    "Nodes from which Pods and claims take more than there is",
                    "short",
                    &[("nodes", "max(dragoman_ledger_nodes{state=\"overcommitted\"})")],
                ),
                stat(
                    "Oldest idle claim",
                    "Age of the oldest claim that is allocated and reserved for no consumer",
                    "s",
                    &[("age", "max(dragoman_claims_allocated_unreserved_oldest_seconds)")],
                ),
            ],
        },
        Row {
            title: "Supply and use",
            panels: &[
                series(
                    "By driver",
                    "Devices published, allocated, reserved for a consumer, idle, and stranded",
                    "short",
                    &[("{{driver}} {{state}}", "max by (driver, state) (dragoman_devices)")],
                ),
                series(
                    "By class",
                    "Allocated devices by the DeviceClass that was asked for",
                    "short",
                    &[("{{device_class}}", "max by (device_class) (dragoman_class_devices)")],
                ),
                series(
                    "By namespace",
                    "Allocated devices of the twenty namespaces with most, and of all others",
                    "short",
                    &[("{{claim_namespace}}", "max by (claim_namespace) (dragoman_namespace_devices)")],
                ),
                series(
                    "By pool",
                    "Free devices of the ten pools with most (--metrics-per-node)",
                    "short",
                    &[(
                        "{{driver}} {{pool}}",
                        "topk(10, clamp_min(max by (driver, pool) (dragoman_pool_devices{state=\"published\"}) - max by (driver, pool) (dragoman_pool_devices{state=\"allocated\"}), 0))",
                    )],
                ),
                series(
                    "Fragmentation",
                    "Share of the free devices whose pool is in use: claims for a whole node do not find them",
                    "percentunit",
                    &[(
                        "{{driver}}",
                        "max by (driver) (dragoman_devices{state=\"stranded\"}) / (max by (driver) (dragoman_devices{state=\"published\"}) - max by (driver) (dragoman_devices{state=\"allocated\"}) > 0)",
                    )],
                ),
                series(
                    "Idle claims",
                    "Claims that are allocated and reserved for no consumer, and those of consumers that are unknown here",
                    "short",
                    &[
                        ("unreserved", "max(dragoman_claims_allocated_unreserved)"),
                        ("unknown consumer", "max(dragoman_claims_held_by_unknown_consumer)"),
                    ],
                ),
            ],
        },
        Row {
            title: "Claims and Pods",
            panels: &[
                series(
                    "Claims",
                    "By state, under the name of the built-in controller",
                    "short",
                    &[(
                        "allocated={{allocated}} {{source}}",
                        "sum by (allocated, source) (dynamic_resource_allocation_resource_claims)",
                    )],
                ),
                series(
                    "Pods behind closed gates",
                    "By what they wait for",
                    "short",
                    &[("{{reason}}", "max by (reason) (dragoman_gates_closed) > 0")],
                ),
                series(
                    "Oldest of them",
                    "Age of the wait that is longest for each reason",
                    "s",
                    &[("{{reason}}", "max by (reason) (dragoman_gates_oldest_seconds) > 0")],
                ),
                series(
                    "Gates",
                    "Gates opened a second, and allocations refused because the Pod does not fit on its node",
                    "cps",
                    &[
                        ("opened", "sum(rate(dragoman_gates_opened_total[$__rate_interval]))"),
                        ("refused", "sum(rate(dragoman_gates_rejections_total[$__rate_interval]))"),
                    ],
                ),
                series(
                    "Decisions of the allocator",
                    "A second, by outcome",
                    "cps",
                    &[(
                        "{{outcome}}",
                        "sum by (outcome) (rate(dragoman_allocator_decisions_total[$__rate_interval]))",
                    )],
                ),
                series(
                    "Pods without a node",
                    "Gated Pods that no node takes now, and Pods charged to a node that are not bound yet",
                    "short",
                    &[
                        ("no node takes them", "max(dragoman_allocator_waiting_pods)"),
                        ("charged, not bound", "max(dragoman_gates_assumed)"),
                    ],
                ),
            ],
        },
        Row {
            title: "Nodes",
            panels: &[
                series(
                    "Cpu",
                    "Cores of all nodes: allocatable, taken by Pods, by claims, and left",
                    "short",
                    &[("{{part}}", "max by (part) (dragoman_ledger_amount{resource=\"cpu\"})")],
                ),
                series(
                    "Memory",
                    "Bytes of all nodes: allocatable, taken by Pods, by claims, and left",
                    "bytes",
                    &[("{{part}}", "max by (part) (dragoman_ledger_amount{resource=\"memory\"})")],
                ),
                series(
                    "Nodes",
                    "By what is known of them",
                    "short",
                    &[("{{state}}", "max by (state) (dragoman_ledger_nodes)")],
                ),
                series(
                    "Fullest nodes",
                    "Cores left on the ten nodes with least (--metrics-per-node)",
                    "short",
                    &[(
                        "{{node}}",
                        "bottomk(10, max by (node) (dragoman_ledger_node_amount{resource=\"cpu\",part=\"left\"}))",
                    )],
                ),
                series(
                    "Ledgers",
                    "Ledgers written a second, and facts that are missing or unreadable",
                    "short",
                    &[
                        ("written", "sum(rate(dragoman_ledger_published_total[$__rate_interval]))"),
                        ("unaccounted facts", "max(dragoman_ledger_unaccounted_facts)"),
                    ],
                ),
                series(
                    "Published to schedulers",
                    "Pods a second whose status says what their claims take, nodes with a holder Pod, and the age of the oldest change that is not published",
                    "short",
                    &[
                        ("Pod statuses", "sum(rate(dragoman_pod_status_written_total[$__rate_interval]))"),
                        ("holder Pods", "max(dragoman_holder_pods)"),
                        (
                            "oldest change in seconds",
                            "max(dragoman_ledger_oldest_unpublished_change_seconds)",
                        ),
                    ],
                ),
            ],
        },
    ],
};
