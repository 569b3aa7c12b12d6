//! The questions, in independent chapters.

mod api;
mod cluster;
mod kinds;
mod resources;
mod rights;
mod schemas;

use serde_json::{Value, json};

use super::Question;

/// Questions that build on each other.
pub(super) struct Chapter {
    pub(super) name: &'static str,
    pub(super) questions: Vec<Question>,
}

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

const PODS: &str = "/api/v1/namespaces/c/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/c/configmaps";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/c/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/c/resourceclaimtemplates";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// All chapters.
pub(super) fn chapters() -> Vec<Chapter> {
    vec![
        api::discovery(),
        api::objects_and_versions(),
        api::lists(),
        api::watches(),
        api::compaction(),
        api::patches(),
        api::apply(),
        kinds::claims(),
        kinds::claim_status(),
        kinds::pods(),
        kinds::deletion(),
        kinds::refusals(),
        kinds::typos(),
        kinds::tables(),
        cluster::garbage(),
        cluster::propagation(),
        cluster::namespaces(),
        cluster::custom("custom-namespaced", "toasters", "Namespaced"),
        cluster::custom("custom-cluster", "ovens", "Cluster"),
        cluster::quotas(),
        rights::roles(),
        rights::claim_status(),
        schemas::schemas(),
        resources::pods(),
        resources::resizes(),
    ]
}

#[derive(Default)]
struct Writer(Vec<Question>);

impl Writer {
    fn ask(
        &mut self,
        label: &str,
        method: &'static str,
        path: &str,
        content_type: &'static str,
        body: Value,
    ) -> &mut Question {
        self.0.push(Question {
            label: label.to_owned(),
            method,
            path: path.to_owned(),
            content_type,
            accept: JSON,
            body,
            user: None,
            free: Vec::new(),
            until: None,
        });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    fn get(&mut self, label: &str, path: &str) -> &mut Question {
        self.ask(label, "GET", path, JSON, Value::Null)
    }

    fn post(&mut self, label: &str, path: &str, body: Value) -> &mut Question {
        self.ask(label, "POST", path, JSON, body)
    }

    fn put(&mut self, label: &str, path: &str, body: Value) -> &mut Question {
        self.ask(label, "PUT", path, JSON, body)
    }

    fn delete(&mut self, label: &str, path: &str, body: Value) -> &mut Question {
        self.ask(label, "DELETE", path, JSON, body)
    }

    fn patch(&mut self, label: &str, path: &str, form: &'static str, body: Value) -> &mut Question {
        self.ask(label, "PATCH", path, form, body)
    }

    fn namespace(&mut self) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "c"}});
        self.post("namespace", "/api/v1/namespaces", namespace).free = vec![
            "/metadata",
            "/code",
            "/message",
            "/reason",
            "/details",
            "/spec",
            "/status",
            "/kind",
            "/apiVersion",
        ];
    }

    fn done(self, name: &'static str) -> Chapter {
        // Every chapter has a namespace of its own.
        let own = |text: String| {
            text.replace("/namespaces/c/", &format!("/namespaces/c-{name}/"))
                .replace("\"name\":\"c\"", &format!("\"name\":\"c-{name}\""))
                .replace("\"namespace\":\"c\"", &format!("\"namespace\":\"c-{name}\""))
                .replace("/namespaces/c?", &format!("/namespaces/c-{name}?"))
        };
        let questions = self.0.into_iter().map(|mut question| {
            question.path = own(question.path);
            if question.path.ends_with("/namespaces/c") {
                question.path = question.path + "-" + name;
            }
            question.body = serde_json::from_str(&own(question.body.to_string())).unwrap_or_default();
            question
        });
        Chapter { name, questions: questions.collect() }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what json! makes")]
fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}
