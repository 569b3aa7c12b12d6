//! Label and field selectors.

use serde_json::Value;

use super::status::Status;
use crate::kinds::Resource;

/// The label and field selectors of a list or a watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
}

impl Selector {
    /// Parses both selectors.
    ///
    /// # Errors
    /// A selector cannot be parsed, or a field is not selectable.
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, Status> {
        let labels = split(labels).into_iter().map(requirement).collect::<Result<Vec<_>, _>>();
        let labels =
            labels.map_err(|why| Status::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = fields.split(',').filter(|part| !part.is_empty()).map(requirement);
        let fields = fields.collect::<Result<Vec<_>, _>>().map_err(Status::bad_request)?;
        if let Some(other) = fields.iter().find(|field| !is_selectable(resource, &field.key)) {
            let message = if resource.group.is_empty() || resource.plural != "events" {
                format!("field label not supported: {}", other.key)
            } else {
                format!("{:?} is not a known field selector", other.key)
            };
            return Err(Status::bad_request(message));
        }
        Ok(Self { labels, fields })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn selects(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"][key].as_str().map(str::to_owned);
        let field = |key: &str| {
            let value = key.split('.').fold(object, |at, part| &at[part]);
            Some(value.as_str().map_or_else(
                || if value.is_null() { String::new() } else { value.to_string() },
                str::to_owned,
            ))
        };
        self.labels.iter().all(|requirement| requirement.holds(label(&requirement.key)))
            && self.fields.iter().all(|requirement| requirement.holds(field(&requirement.key)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<String>) -> bool {
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(&value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(&value)),
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
        }
    }
}

/// Whether the objects of a resource can be selected by `field`.
fn is_selectable(resource: &Resource, field: &str) -> bool {
    let others: &[&str] = match (&*resource.group, &*resource.plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "type",
            "reportingComponent",
            "source",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "type",
            "reportingController",
        ],
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
        ("", "secrets") => &["type"],
        _ => &[],
    };
    matches!(field, "metadata.name" | "metadata.namespace") || others.contains(&field)
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
    .collect()
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let of = |key: &str, test: Test| Requirement { key: key.trim().to_owned(), test };
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some((key, value)) = text.split_once("!=") {
        return Ok(of(key, Test::NotIn(one(value))));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(of(key, Test::In(one(value))));
    }
    if let Some((head, values)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => Ok(of(key, Test::In(values))),
            (Some(key), Some("notin"), None) => Ok(of(key, Test::NotIn(values))),
            _ => Err(format!("found {head:?}, expected: in, notin")),
        };
    }
    if text.split_whitespace().count() > 1 {
        return Err(format!("found {text:?}, expected: in, notin, =, ==, !="));
    }
    Ok(match text.strip_prefix('!') {
        Some(key) => of(key, Test::Missing),
        None => of(text, Test::Exists),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::{Profile, built_in};

    fn selects(labels: &str, fields: &str, object: &Value) -> bool {
        let pods = built_in(&Profile::default())
            .into_iter()
            .find(|resource| resource.plural == "pods")
            .expect("pods");
        Selector::parse(&pods, labels, fields).expect("selector").selects(object)
    }

    #[test]
    fn labels() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        for (selector, expected) in [
            ("", true),
            ("a=1", true),
            ("a==2", false),
            ("a!=2", true),
            ("c!=2", true),
            ("a", true),
            ("c", false),
            ("!c", true),
            ("a in (1, 3),b", true),
            ("a notin (1,3)", false),
            ("a=1,b=3", false),
        ] {
            assert_eq!(selects(selector, "", &object), expected, "{selector}");
        }
    }

    #[test]
    fn fields() {
        let object =
            json!({"metadata": {"name": "x"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        assert!(selects("", "metadata.name=x,spec.nodeName=n", &object));
        assert!(selects("", "spec.nodeName!=", &object));
        assert!(!selects("", "status.phase!=Running", &object));
        let pods = built_in(&Profile::default())
            .into_iter()
            .find(|resource| resource.plural == "pods")
            .expect("pods");
        assert_eq!(Selector::parse(&pods, "", "spec.foo=1").expect_err("unknown").code, 400);
        assert_eq!(Selector::parse(&pods, "a b", "").expect_err("nonsense").code, 400);
    }
}
