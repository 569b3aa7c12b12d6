//! A cluster on one page of HTML: nodes, devices, claims, and the Pods that wait with the reason. The page loads nothing from elsewhere
//! and has no script, so that it can be sent and kept.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use jiff::Timestamp;

use crate::availability::is_known;
use crate::facts::Facts;
use crate::lists::{self, Cell, Table};
use crate::printable;
use crate::why::{self, Group, Why};

/// The look of the page.
const STYLE: &str = include_str!("style.css");
/// The nodes that are drawn; those with the fewest free devices come first.
const NODES: usize = 500;
/// The devices of a node that are drawn.
const DEVICES: usize = 256;
/// The rows of a table.
const ROWS: usize = 500;

/// States of devices, each with its meaning: the legend.
const STATES: [(&str, &str); 11] = [
    ("?", "claims or DeviceTaintRules could not be read"),
    ("Free", "a claim can have it"),
    ("Shared", "claims have shares of it, and there is more"),
    ("Full", "claims have all of a capacity"),
    ("Taken", "a claim has it"),
    ("Excluded", "others have drawn what it needs"),
    ("Tainted", "for claims that tolerate its taints"),
    ("Incomplete", "slices of its pool are missing"),
    ("Invalid", "the slices of its pool contradict each other"),
    ("Unreadable", "it cannot be read"),
    ("Gone", "no slice lists it, and a claim has it"),
];

/// Text of others, without control characters, so that a browser shows it as it is.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        printable(self.0).chars().try_for_each(|character| match character {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            other => write!(f, "{other}"),
        })
    }
}

/// Draws a cluster. `namespace` confines Pods and claims to one namespace.
pub fn html(facts: Facts, namespace: Option<&str>, now: Timestamp) -> String {
    let devices = lists::devices(&facts);
    let mut claims = lists::claims(&facts, now);
    let read = Read {
        devices: !facts.lacks("resourceslices"),
        availability: is_known(&facts),
        claims: !facts.lacks("resourceclaims"),
        pods: !facts.lacks("pods"),
    };
    if let Some(namespace) = namespace {
        claims.rows.retain(|row| row.first().is_some_and(|of| of.shown == namespace));
    }
    let why = why::why(facts, namespace, now);
    let place = namespace.map_or_else(|| "all namespaces".to_owned(), |name| format!("namespace {name}"));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Devices and claims, {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>Devices and claims</h1>\n<p class=\"of\">{} · {now:.0}</p>\n",
        Escaped(&place),
        Escaped(&place),
    );
    page.push_str(&summary(&devices, &claims, &why, read));
    page.push_str(&waiting(&why, now, read));
    page.push_str(&nodes(&devices, read));
    page.push_str(&table("Claims", &claims, read));
    if !why.lacks.is_empty() {
        page.push_str("<h2>Not read</h2>\n<ul class=\"lacks\">\n");
        why.lacks.iter().for_each(|lack| page.push_str(&format!("<li>{}</li>\n", Escaped(lack))));
        page.push_str("</ul>\n");
    }
    page.push_str("<footer>kubectl dra report</footer>\n</body>\n</html>\n");
    page
}

fn text<'a>(table: &Table, row: &'a [Cell], field: &str) -> &'a str {
    table.cell(row, field).map_or("", |cell| cell.shown.as_str())
}

/// Kinds that could be read. Of the others nothing is said.
#[derive(Debug, Clone, Copy)]
struct Read {
    devices: bool,
    /// Whether it is known of each device whether a claim can have it.
    availability: bool,
    claims: bool,
    pods: bool,
}

/// A number with its noun; `?` where it is not known.
fn counted(number: usize, is_known: bool, one: &str, many: &str) -> String {
    let noun = if number == 1 && is_known { one } else { many };
    let number = if is_known { number.to_string() } else { "?".to_owned() };
    format!("<li><b>{number}</b> {noun}</li>\n")
}

/// The numbers at the top.
fn summary(devices: &Table, claims: &Table, why: &Why, read: Read) -> String {
    let free = devices.rows.iter().filter(|row| can_be_had(devices, row)).count();
    format!(
        "<ul class=\"numbers\">\n{}{}{}{}{}</ul>\n",
        counted(devices.rows.len(), read.devices, "device", "devices"),
        counted(free, read.devices && read.availability, "can be had", "can be had"),
        counted(claims.rows.len(), read.claims, "claim", "claims"),
        counted(why.pods, read.pods, "Pod waits", "Pods wait"),
        counted(why.starting, read.pods, "Pod is starting", "Pods are starting"),
    )
}

fn can_be_had(devices: &Table, row: &[Cell]) -> bool {
    ["Free", "Shared"].contains(&text(devices, row, "state"))
}

/// The words of a section without rows.
fn none(is_read: bool) -> &'static str {
    if is_read { "<p>None.</p>\n" } else { "<p>Not read.</p>\n" }
}

/// The Pods that wait, by cause.
fn waiting(why: &Why, now: Timestamp, read: Read) -> String {
    let mut section = "<h2>Pods that wait</h2>\n".to_owned();
    if why.groups.is_empty() {
        section.push_str(none(read.pods));
    }
    for Group { verdict, pods } in &why.groups {
        let named = pods.iter().take(ROWS).map(|pod| {
            let since = crate::explain::age(pod.creation_timestamp.as_deref(), now);
            format!("<li>{}/{} <i>{since}</i></li>\n", Escaped(&pod.namespace), Escaped(&pod.name))
        });
        let advice = if verdict.advice.is_empty() {
            String::new()
        } else {
            format!("<p class=\"advice\">What to do: {}</p>\n", Escaped(&verdict.advice))
        };
        let count = if pods.len() == 1 { "1 Pod".to_owned() } else { format!("{} Pods", pods.len()) };
        section.push_str(&format!(
            "<details class=\"cause\" open><summary><b>{}</b> {count}</summary>\n<p>{}</p>\n{advice}<ul>\n{}</ul></details>\n",
            Escaped(verdict.reason),
            Escaped(&verdict.sentence),
            named.collect::<String>()
        ));
    }
    section
}

/// Each node with its devices.
fn nodes(devices: &Table, read: Read) -> String {
    let mut nodes: BTreeMap<&str, Vec<&Vec<Cell>>> = BTreeMap::new();
    for row in &devices.rows {
        nodes.entry(text(devices, row, "node")).or_default().push(row);
    }
    let free = |rows: &[&Vec<Cell>]| rows.iter().filter(|row| can_be_had(devices, row)).count();
    let mut drawn: Vec<(&str, Vec<&Vec<Cell>>)> = nodes.into_iter().collect();
    let all = drawn.len();
    // A stable sort: nodes with as many free devices stay in the order of their names.
    drawn.sort_by_key(|(_, rows)| free(rows));
    let mut section = "<h2>Nodes</h2>\n<ul class=\"legend\">\n".to_owned();
    let seen: Vec<&str> = devices.rows.iter().map(|row| text(devices, row, "state")).collect();
    for (state, meaning) in STATES.iter().filter(|(state, _)| seen.contains(state)) {
        let class = class(state);
        section.push_str(&format!("<li><span class=\"device {class}\"></span> {state}: {meaning}</li>\n"));
    }
    section.push_str("</ul>\n<div class=\"nodes\">\n");
    if drawn.is_empty() {
        section.push_str(none(read.devices));
    }
    for (node, rows) in drawn.iter().take(NODES) {
        let name = match *node {
            "*" => "devices of several nodes",
            "?" if read.devices => "devices that no slice lists",
            "?" => "devices that claims have",
            node => node,
        };
        let squares: String = rows.iter().take(DEVICES).map(|row| square(devices, row)).collect();
        let more = match rows.len().saturating_sub(DEVICES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let free = if read.devices && read.availability { free(rows).to_string() } else { "?".to_owned() };
        section.push_str(&format!(
            "<section><h3>{}</h3><p>{free} of {} can be had</p><div class=\"devices\">{squares}{more}</div></section>\n",
            Escaped(name),
            rows.len(),
        ));
    }
    section.push_str("</div>\n");
    if all > NODES {
        section.push_str(&format!("<p>and {} more nodes</p>\n", all - NODES));
    }
    section
}

/// The class of a state in the style sheet.
fn class(state: &str) -> &'static str {
    match STATES.iter().find(|(known, _)| *known == state) {
        Some((known, _)) if *known != "?" => known,
        _ => "unknown",
    }
}

/// A device: a square in the colour of its state, whose words a browser shows under the pointer and reads aloud.
fn square(devices: &Table, row: &[Cell]) -> String {
    let of = |field| text(devices, row, field);
    let state = class(of("state"));
    let mut words = format!("{}/{}/{}: {}", of("driver"), of("pool"), of("device"), of("state"));
    for (field, before) in [("claims", "claim "), ("consumers", "for "), ("left", ""), ("taints", "taints ")]
    {
        if !of(field).is_empty() {
            words.push_str(&format!(", {before}{}", of(field)));
        }
    }
    let words = Escaped(&words);
    format!("<span class=\"device {state}\" role=\"img\" title=\"{words}\" aria-label=\"{words}\"></span>")
}

/// A list as a table.
fn table(title: &str, table: &Table, read: Read) -> String {
    let columns: Vec<_> = table.shown(true).collect();
    let mut section = format!("<h2>{title}</h2>\n");
    if table.rows.is_empty() {
        return section + none(read.claims);
    }
    section.push_str("<div class=\"wide\"><table>\n<tr>");
    columns.iter().for_each(|(_, column)| section.push_str(&format!("<th>{}</th>", column.title)));
    section.push_str("</tr>\n");
    for row in table.rows.iter().take(ROWS) {
        section.push_str("<tr>");
        for (place, _) in &columns {
            let shown = row.get(*place).map_or("", |cell| cell.shown.as_str());
            section.push_str(&format!("<td>{}</td>", Escaped(shown)));
        }
        section.push_str("</tr>\n");
    }
    section.push_str("</table></div>\n");
    match table.rows.len().saturating_sub(ROWS) {
        0 => section,
        more => section + &format!("<p>and {more} more</p>\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str, namespace: Option<&str>) -> String {
        let mut facts = Facts::default();
        facts.take_file(std::path::Path::new("f"), text).expect("objects");
        html(facts, namespace, "2026-01-01T01:00:00Z".parse().expect("a time"))
    }

    const CLUSTER: &str = include_str!("../schema/cluster.json");

    #[test]
    fn the_page_shows_devices_claims_and_why_pods_wait() {
        let page = page(CLUSTER, None);
        for words in [
            "<b>2</b> devices",
            "<b>0</b> can be had",
            "<b>3</b> claims",
            "<b>1</b> Pod waits",
            "<b>NoDevicesFree</b> 1 Pod",
            "<li>ml/waits <i>60m</i></li>",
            "<h3>n1</h3><p>0 of 2 can be had</p>",
            "title=\"d.example/n1/a: Taken, claim ml/held, for Pod runs\"",
            "<td>Pending</td>",
        ] {
            assert!(page.contains(words), "{words} is not in\n{page}");
        }
        assert!(!page.contains("http") && !page.contains("<script"), "nothing is loaded, nothing runs");
    }

    #[test]
    fn one_namespace_keeps_the_devices_and_leaves_claims_of_others_out() {
        let page = page(CLUSTER, Some("other"));
        assert!(page.contains("<b>2</b> devices") && page.contains("<b>0</b> claims"), "{page}");
        assert!(page.contains("<b>0</b> Pods wait"), "{page}");
    }

    #[test]
    fn what_could_not_be_read_is_no_zero() {
        let mut facts = Facts::default();
        for resource in ["pods", "resourceclaims.resource.k8s.io", "resourceslices.resource.k8s.io"] {
            facts.forbid(None, resource.to_owned());
        }
        let page = html(facts, None, Timestamp::UNIX_EPOCH);
        assert!(!page.contains("<b>0</b>") && !page.contains("None.") && page.contains("Not read"), "{page}");
    }

    #[test]
    fn names_of_others_stay_text() {
        let hostile = "<script>alert(1)</script>\\\" onload='x' &amp;\\u001b[2J";
        let page = page(&CLUSTER.replace("\"wanted\"", &format!("\"{hostile}\"")), None);
        let (head, body) = page.split_once("<body>").expect("a body");
        assert!(!head.contains("alert"));
        assert!(
            !body.contains("<script>") && !body.contains('\u{1b}') && !body.contains("onload='"),
            "{body}"
        );
        assert!(body.contains("&lt;script&gt;alert(1)"), "{body}");
    }
}
