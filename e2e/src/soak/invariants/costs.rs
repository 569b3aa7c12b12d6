//! What a run costs, and whether it came to anything.

use dragoman_simcluster::{ApiServer, Chronicled, Write};
use serde_json::Value;

use super::{GROUPS, PODS, items};

/// What the run costs at most: the writes of a life, and of a fault.
const WRITES_OF_A_LIFE: usize = 10;
const WRITES_OF_A_FAULT: usize = 2;

/// Writes about claims, of all parties, against what lives and faults may cost. What the
/// controller asks for counts also where it is refused or changes nothing.
pub(super) fn broken(
    chronicle: &[Chronicled],
    writes: &[Write],
    ours: usize,
    faults: usize,
) -> Option<String> {
    let created =
        chronicle.iter().filter(|step| step.before.is_none() && [PODS, GROUPS].contains(&&*step.resource));
    let extended = |pod: &Value| usize::from(pod["spec"]["containers"][0]["resources"]["limits"].is_object());
    let entries = |pod: &Value| items(&pod["spec"]["resourceClaims"]).count() + extended(pod);
    let pods: Vec<usize> = created.filter_map(|step| step.after.as_ref()).map(|pod| entries(pod)).collect();
    // A Pod without claims costs nothing but being bound.
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

/// Pods that have come to a good end: without any a run says nothing.
pub(in crate::soak) fn succeeded(server: &ApiServer) -> usize {
    let done = |pod: &Value| pod["status"]["phase"] == "Succeeded";
    let ends = |step: &&Chronicled| {
        step.resource == PODS
            && step.after.as_ref().is_some_and(|pod| done(pod))
            && step
                .before
                .as_ref()
                .is_some_and(|pod| !done(pod) && items(&pod["spec"]["resourceClaims"]).next().is_some())
    };
    server.chronicled(0).iter().filter(ends).count()
}
