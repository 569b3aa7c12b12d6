//! kube-scheduler, on either control plane.

use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

use super::process::{Process, free_port};
use super::{Election, Programs, Shape};

/// Content type in which kube-scheduler speaks to a real API server.
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl Shape {
    /// Starts it as `scheduler.kubeconfig` in `directory` says.
    pub(super) fn start_scheduler(
        &self,
        programs: &Programs,
        directory: &Path,
        content_type: &str,
    ) -> anyhow::Result<Process> {
        let kubeconfig = directory.join("scheduler.kubeconfig").display().to_string();
        let config = directory.join("scheduler.yaml");
        let text = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            // A process that loses its Lease ends, and no kubelet starts it again here: it may be slow for longer than as shipped.
            "leaderElection": {
                "leaderElect": self.election == Election::Lease,
                "leaseDuration": "120s", "renewDeadline": "110s", "retryPeriod": "2s",
            },
            // Never the bottleneck: what is measured is the claim controller.
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000, "contentType": content_type},
        });
        std::fs::write(&config, text.to_string()).context("scheduler config")?;
        let mut arguments = vec![
            format!("--config={}", config.display()),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--authentication-skip-lookup".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", free_port()?),
        ];
        arguments.extend(self.gates());
        arguments.extend(self.emulation());
        Process::spawn(&programs.path("kube-scheduler"), "kube-scheduler", &arguments, directory)
    }
}
