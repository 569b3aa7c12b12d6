//! Whether Dragoman is well, and where its time goes.

use super::{Dashboard, Row, series, stat};

pub(super) const DASHBOARD: Dashboard = Dashboard {
    file: "operations",
    title: "Dragoman / Operations",
    description: "Health and objectives of Dragoman, its queues, watches and requests. The alerts of the same metrics have runbooks.",
    rows: &[
        Row {
            title: "Health",
            panels: &[
                stat(
                    "Processes",
                    "Processes that Prometheus scrapes, by version",
                    "short",
                    &[("{{version}}", "count by (version) (dragoman_build_info)")],
                ),
                stat(
                    "Leaders",
                    "Processes that hold each Lease: one, or none for seconds",
                    "short",
                    &[("{{name}}", "sum by (name) (leader_election_master_status{name=~\"dragoman.*\"})")],
                ),
                stat(
                    "Alerts",
                    "Alerts of Dragoman that fire",
                    "short",
                    &[(
                        "firing",
                        "count(ALERTS{alertname=~\"Dragoman.*\",alertstate=\"firing\"}) or vector(0)",
                    )],
                ),
                stat(
                    "Second writer",
                    "Namespaces in which another process creates claims from templates; 0 where all is well",
                    "short",
                    &[("namespaces", "max(dragoman_second_writer)")],
                ),
                stat(
                    "Failing keys",
                    "Objects whose last reconciliation failed",
                    "short",
                    &[("keys", "sum(dragoman_keys_failing)")],
                ),
                stat(
                    "Mode",
                    "Processes by the mode that is in force",
                    "short",
                    &[("{{mode}}", "sum by (mode) (dragoman_mode)")],
                ),
            ],
        },
        Row {
            title: "Objectives",
            panels: &[
                series(
                    "Within five seconds",
                    "Share of the Pods whose claims were published, and of the claims that were released, within five seconds: an alert fires below 95 %",
                    "percentunit",
                    &[
                        ("published", "cluster:dragoman_pod_claims_published_within_5s:ratio_rate10m"),
                        ("released", "cluster:dragoman_claim_release_within_5s:ratio_rate10m"),
                    ],
                ),
                series(
                    "Until claims are published",
                    "Seconds from the creation of a Pod until its status names its claims, of Pods that no trouble of their own held up",
                    "s",
                    &[
                        (
                            "99 %",
                            "histogram_quantile(0.99, sum by (le) (rate(dragoman_pod_claims_published_seconds_bucket{held_up=\"false\"}[$__rate_interval])))",
                        ),
                        (
                            "50 %",
                            "histogram_quantile(0.5, sum by (le) (rate(dragoman_pod_claims_published_seconds_bucket{held_up=\"false\"}[$__rate_interval])))",
                        ),
                    ],
                ),
                series(
                    "Until claims are released",
                    "Seconds from the end of a consumer until a claim is not reserved for it any more",
                    "s",
                    &[
                        (
                            "99 %",
                            "histogram_quantile(0.99, sum by (le) (rate(dragoman_claim_release_seconds_bucket[$__rate_interval])))",
                        ),
                        (
                            "50 %",
                            "histogram_quantile(0.5, sum by (le) (rate(dragoman_claim_release_seconds_bucket[$__rate_interval])))",
                        ),
                    ],
                ),
                series(
                    "Pods that wait for their claims",
                    "By what stood in the way last; Pending is Dragoman's own time",
                    "short",
                    &[("{{reason}}", "max by (reason) (dragoman_pods_waiting_for_claims) > 0")],
                ),
                series(
                    "Oldest of them",
                    "Age of the Pod that has waited longest for each reason",
                    "s",
                    &[(
                        "{{reason}}",
                        "max by (reason) (dragoman_pods_waiting_for_claims_oldest_seconds) > 0",
                    )],
                ),
                series(
                    "Troubles",
                    "What stood in the way of claims, a second",
                    "cps",
                    &[(
                        "{{reason}}",
                        "sum by (reason) (rate(dragoman_claim_troubles_total[$__rate_interval])) > 0",
                    )],
                ),
                series(
                    "Claims created",
                    "Attempts a second, under the name of the built-in controller",
                    "cps",
                    &[(
                        "{{status}}",
                        "sum by (status) (rate(dynamic_resource_allocation_resourceclaim_creates_total[$__rate_interval]))",
                    )],
                ),
                series(
                    "Steps at the end of claims",
                    "Reservations removed, devices released, claims deleted, a second",
                    "cps",
                    &[("{{step}}", "sum by (step) (rate(dragoman_claim_steps_total[$__rate_interval]))")],
                ),
                series(
                    "Consumers that vanished",
                    "Pods that were removed by force while they may have been running",
                    "short",
                    &[(
                        "vanished",
                        "sum(increase(dragoman_consumers_vanished_running_total[$__rate_interval]))",
                    )],
                ),
            ],
        },
        Row {
            title: "Queues",
            panels: &[
                series(
                    "Keys that wait",
                    "Depth of each queue: it falls to zero between bursts",
                    "short",
                    &[("{{name}}", "sum by (name) (workqueue_depth)")],
                ),
                series(
                    "Time in the queue",
                    "99 % of the keys waited no longer than this",
                    "s",
                    &[(
                        "{{name}}",
                        "histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket[$__rate_interval])))",
                    )],
                ),
                series(
                    "Time in work",
                    "99 % of the keys were in work no longer than this",
                    "s",
                    &[(
                        "{{name}}",
                        "histogram_quantile(0.99, sum by (name, le) (rate(workqueue_work_duration_seconds_bucket[$__rate_interval])))",
                    )],
                ),
                series(
                    "Keys added and put back",
                    "Keys a second; those put back met an error",
                    "cps",
                    &[
                        ("{{name}} added", "sum by (name) (rate(workqueue_adds_total[$__rate_interval]))"),
                        (
                            "{{name}} put back",
                            "sum by (name) (rate(workqueue_retries_total[$__rate_interval]))",
                        ),
                    ],
                ),
                series(
                    "Workers",
                    "Keys in work at once, and how many may be",
                    "short",
                    &[
                        ("{{controller}}", "sum by (controller) (controller_runtime_active_workers)"),
                        (
                            "{{controller}} at most",
                            "max by (controller) (controller_runtime_max_concurrent_reconciles)",
                        ),
                    ],
                ),
                series(
                    "Reconciliations",
                    "By result, a second",
                    "cps",
                    &[(
                        "{{controller}} {{result}}",
                        "sum by (controller, result) (rate(controller_runtime_reconcile_total[$__rate_interval]))",
                    )],
                ),
                series(
                    "Waits for own writes",
                    "Keys put off until the index holds the write of before, and waits that were given up",
                    "cps",
                    &[
                        (
                            "{{controller}}",
                            "sum by (controller) (rate(dragoman_stale_skips_total[$__rate_interval]))",
                        ),
                        (
                            "{{controller}} given up",
                            "sum by (controller) (rate(dragoman_stale_overdue_total[$__rate_interval]))",
                        ),
                    ],
                ),
                series(
                    "Longest failing key",
                    "Seconds since the first failure of the key that has failed longest",
                    "s",
                    &[("{{name}}", "max by (name) (dragoman_keys_failing_oldest_seconds)")],
                ),
                series(
                    "Longest running key",
                    "Seconds, and the sum over all keys in work",
                    "s",
                    &[
                        ("{{name}}", "max by (name) (workqueue_longest_running_processor_seconds)"),
                        ("{{name}} all", "sum by (name) (workqueue_unfinished_work_seconds)"),
                    ],
                ),
            ],
        },
        Row {
            title: "Watches",
            panels: &[
                series(
                    "Events",
                    "Watch events a second by kind",
                    "cps",
                    &[("{{kind}}", "sum by (kind) (rate(dragoman_watch_events_total[$__rate_interval]))")],
                ),
                series(
                    "Since the last sign of life",
                    "Seconds; a bookmark comes every minute",
                    "s",
                    &[("{{kind}}", "max by (kind) (dragoman_watch_last_progress_seconds)")],
                ),
                series(
                    "Failures and complete lists",
                    "A second; a list follows a watch that cannot be resumed",
                    "cps",
                    &[
                        (
                            "{{kind}} {{reason}}",
                            "sum by (kind, reason) (rate(dragoman_watch_failures_total[$__rate_interval])) > 0",
                        ),
                        ("{{kind}} list", "sum by (kind) (rate(dragoman_relists_total[$__rate_interval]))"),
                    ],
                ),
                series(
                    "Objects",
                    "In the indexes, by kind",
                    "short",
                    &[("{{kind}}", "max by (kind) (dragoman_objects{state=\"readable\"})")],
                ),
                series(
                    "Unreadable objects",
                    "Objects that do not decode: /dump names them",
                    "short",
                    &[("{{kind}}", "max by (kind) (dragoman_objects{state=\"unreadable\"})")],
                ),
                series(
                    "Live reads",
                    "Reads a second that prove an absence, or come before a write",
                    "cps",
                    &[("{{kind}}", "sum by (kind) (rate(dragoman_live_gets_total[$__rate_interval]))")],
                ),
            ],
        },
        Row {
            title: "Cost at the API server",
            panels: &[
                series(
                    "Requests",
                    "Attempts a second by status code; 0 is no answer",
                    "reqps",
                    &[(
                        "{{method}} {{code}}",
                        "sum by (method, code) (rate(rest_client_requests_total[$__rate_interval]) and on (instance, job) dragoman_build_info)",
                    )],
                ),
                series(
                    "Duration",
                    "99 % of the requests had their answer after this time",
                    "s",
                    &[(
                        "{{verb}}",
                        "histogram_quantile(0.99, sum by (verb, le) (rate(rest_client_request_duration_seconds_bucket[$__rate_interval]) and on (instance, job) dragoman_build_info))",
                    )],
                ),
                series(
                    "Writes",
                    "Writes a second by kind and outcome",
                    "cps",
                    &[(
                        "{{kind}} {{outcome}}",
                        "sum by (kind, outcome) (rate(dragoman_writes_total[$__rate_interval])) > 0",
                    )],
                ),
                series(
                    "Waiting for the client",
                    "99 % of the attempts waited no longer for a free slot, or for the end of a pause",
                    "s",
                    &[(
                        "99 %",
                        "histogram_quantile(0.99, sum by (le) (rate(dragoman_client_wait_seconds_bucket[$__rate_interval])))",
                    )],
                ),
                series(
                    "Pauses and repetitions",
                    "429 answers that pause the whole client, and attempts repeated after a transient failure",
                    "short",
                    &[
                        ("pauses", "sum(increase(dragoman_client_pauses_total[$__rate_interval]))"),
                        ("repetitions", "sum(increase(dragoman_client_repetitions_total[$__rate_interval]))"),
                    ],
                ),
                series(
                    "Events",
                    "Events of Kubernetes sent a second, and dropped to spare the API server",
                    "cps",
                    &[
                        ("sent", "sum(rate(dragoman_events_sent_total[$__rate_interval]))"),
                        ("dropped", "sum(rate(dragoman_events_dropped_total[$__rate_interval]))"),
                    ],
                ),
            ],
        },
        Row {
            title: "Processes and Lease",
            panels: &[
                series(
                    "Memory",
                    "Resident memory, and the limit",
                    "bytes",
                    &[
                        (
                            "{{instance}}",
                            "process_resident_memory_bytes and on (instance, job) dragoman_build_info",
                        ),
                        ("{{instance}} limit", "dragoman_memory_limit_bytes"),
                    ],
                ),
                series(
                    "Cpu",
                    "Cores in use",
                    "short",
                    &[(
                        "{{instance}}",
                        "rate(process_cpu_seconds_total[$__rate_interval]) and on (instance, job) dragoman_build_info",
                    )],
                ),
                series(
                    "Stalls",
                    "99 % of the timers fired no later than this: a process without cpu is late",
                    "s",
                    &[(
                        "{{instance}}",
                        "histogram_quantile(0.99, sum by (instance, le) (rate(dragoman_runtime_stall_seconds_bucket[$__rate_interval])))",
                    )],
                ),
                series(
                    "Age of the Lease",
                    "Seconds since the leader renewed it; it gives up after ten",
                    "s",
                    &[("{{instance}}", "dragoman_lease_age_seconds")],
                ),
                series(
                    "Changes of leader",
                    "As the Lease counts them",
                    "short",
                    &[("{{name}}", "max by (name) (dragoman_lease_transitions)")],
                ),
                series(
                    "Leaders elsewhere",
                    "Leases of the same name that are renewed in other namespaces",
                    "short",
                    &[("{{instance}}", "dragoman_leaders_elsewhere")],
                ),
            ],
        },
    ],
};
