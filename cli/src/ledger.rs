//! Amounts that Pods and claims take from the nodes of a live cluster, counted as `dragoman account` counts
//! them.

use anyhow::ensure;
use dragoman_accounting::claim::allocation::Judgement;
use dragoman_accounting::cluster::Rules;
use dragoman_accounting::ledger::Charging;
use dragoman_report::{Filter, Keep, Objects, Report, manifests};

use crate::load;
use crate::source::Source;

/// Reads everything that costs a node something. `pods` are those that wait, as NAMESPACE/NAME.
///
/// # Errors
/// Something could not be read: amounts without it would be false, not partial.
pub(crate) async fn report(
    source: &Source,
    nodes: Vec<String>,
    pods: Vec<String>,
    overcommitted: bool,
    in_tree: bool,
) -> anyhow::Result<Report> {
    let waiting = !pods.is_empty();
    let mut objects = Objects::new(if waiting { Keep::Everything } else { Keep::Ledgers });
    match source {
        Source::Cluster(client) => {
            let lacks = load::ledger(client, &mut objects, waiting).await.partial();
            ensure!(lacks.is_empty(), "amounts are not known without everything: {}", lacks.join("; "));
        }
        Source::Files(texts) => {
            for (file, text) in texts {
                manifests::take(file, text, &mut |found| objects.take(found))?;
            }
        }
    }
    ensure!(!objects.is_empty(), "there are no nodes, Pods, claims, slices or footprints");
    let rules = Rules {
        charging: if in_tree { Charging::InTree } else { Charging::PerClaim },
        judgement: if in_tree { Judgement::Upstream } else { Judgement::Ours },
        ..Rules::default()
    };
    Ok(Report::of(objects, rules, &Filter { nodes, pods, overcommitted, waiting, namespaces: Vec::new() }))
}
