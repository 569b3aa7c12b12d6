//! The writes of a run, and the Pods that succeeded in it.

use dragoman_simcluster::{ApiServer, HistoryStep, Write};
use serde_json::Value;

use super::{GROUPS, PODS, items};

/// The most writes for the life of a claim, and for a fault.
const WRITES_OF_A_LIFE: usize = 10;
const WRITES_OF_A_FAULT: usize = 2;

/// Checks that the writes of the controller and of kube-scheduler stay within the limit for the lives and
/// faults of a run. Requests of the controller count even if they are refused or change nothing.
pub(super) fn broken(
    chronicle: &[HistoryStep],
    writes: &[Write],
    ours: usize,
    faults: usize,
) -> Option<String> {
    let created =
        chronicle.iter().filter(|step| step.before.is_none() && [PODS, GROUPS].contains(&&*step.resource));
    let extended = |pod: &Value| usize::from(pod["spec"]["containers"][0]["resources"]["limits"].is_object());
    let entries = |pod: &Value| items(&pod["spec"]["resourceClaims"]).count() + extended(pod);
    let pods: Vec<usize> = created.filter_map(|step| step.after.as_ref()).map(|pod| entries(pod)).collect();
    // A Pod without claims costs only its binding.
    let (lives, without) = (pods.iter().sum::<usize>(), pods.iter().filter(|entries| **entries == 0).count());
    let theirs = writes.iter().filter(|write| {
        write.user == "system:kube-scheduler"
            && (write.resource.starts_with("resourceclaims") || write.resource == "pods/binding")
    });
    let theirs = theirs.count();
    let most = WRITES_OF_A_LIFE * lives + without + WRITES_OF_A_FAULT * faults;
    (ours + theirs > most)
        .then(|| format!("costs: {ours} + {theirs} writes for {lives} lives and {faults} faults"))
}

/// The number of Pods with claims that have succeeded. A run without any proves nothing.
pub(in crate::soak) fn succeeded(server: &ApiServer) -> usize {
    let done = |pod: &Value| pod["status"]["phase"] == "Succeeded";
    let ends = |step: &&HistoryStep| {
        step.resource == PODS
            && step.after.as_ref().is_some_and(|pod| done(pod))
            && step
                .before
                .as_ref()
                .is_some_and(|pod| !done(pod) && items(&pod["spec"]["resourceClaims"]).next().is_some())
    };
    server.chronicled(0).iter().filter(ends).count()
}
