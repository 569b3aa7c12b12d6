//! The templates of the Helm chart that follow from the manifests: roles, bindings, policies, definitions. What a
//! release changes about them is put in by a few replacements, so that chart and kustomize cannot differ.

/// A generated template of the chart.
pub(crate) struct Template {
    /// File name of the template in `config/helm/dragoman/templates/generated`.
    pub name: &'static str,
    /// The manifests that it is made of.
    manifests: &'static [Manifest],
}

/// A manifest under `config/`, and what a release makes of it.
struct Manifest {
    path: &'static str,
    /// The condition under which a release has it; none for always.
    condition: &'static str,
    /// Text that follows the labels of the manifest's objects.
    annotations: &'static str,
}

const fn on(condition: &'static str, path: &'static str) -> Manifest {
    Manifest { path, condition, annotations: "" }
}

const TLS: &str = ".Values.metrics.tls.enabled";
const DELETES: &str = ".Values.deleteUnbound.enabled";
const GATING: &str = ".Values.gating.enabled";
const HOLDERS: &str = ".Values.holders.enabled";
const ALLOCATOR: &str = ".Values.allocator.enabled";
const DRAIN: &str = ".Values.drain.onUninstall";
/// Before the job (weight 1), and gone after it.
const HOOK: &str = "  annotations:
    helm.sh/hook: pre-delete
    helm.sh/hook-weight: \"0\"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
";

/// The generated templates.
pub(crate) const TEMPLATES: &[Template] = &[
    Template {
        name: "definitions.yaml",
        manifests: &[Manifest {
            path: "crds/crds.yaml",
            condition: ".Values.crds.install",
            annotations: "  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
",
        }],
    },
    Template {
        name: "operator.yaml",
        manifests: &[
            Manifest {
                path: "base/serviceaccount.yaml",
                condition: ".Values.serviceAccount.create",
                annotations: "  {{- with .Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
",
            },
            on("", "base/roles.yaml"),
            on("", "base/bindings.yaml"),
            on("ne .Values.mode \"observe\"", "base/assist.yaml"),
            on("ne .Values.mode \"observe\"", "base/confined.yaml"),
            on(".Values.podDisruptionBudget.enabled", "base/poddisruptionbudget.yaml"),
            on(".Values.networkPolicy.enabled", "base/networkpolicy.yaml"),
            on("eq .Values.mode \"own\"", "components/own/binding.yaml"),
            on(TLS, "components/guarded-metrics/rights.yaml"),
            on(DELETES, "components/delete-unbound/roles.yaml"),
            on(DELETES, "components/delete-unbound/binding.yaml"),
            on(DELETES, "components/delete-unbound/confined.yaml"),
        ],
    },
    Template {
        name: "gating.yaml",
        manifests: &[
            on(GATING, "components/gating/roles.yaml"),
            on(GATING, "components/gating/binding.yaml"),
            on(GATING, "components/gating/gate.yaml"),
            on(GATING, "components/gating/enforced.yaml"),
            on(GATING, "components/gating/owners.yaml"),
            on(GATING, "components/gating/drivers.yaml"),
            on(GATING, "components/gating/confined.yaml"),
            on(HOLDERS, "components/holders/roles.yaml"),
            on(HOLDERS, "components/holders/binding.yaml"),
            on(HOLDERS, "components/holders/confined.yaml"),
            on(HOLDERS, "components/holders/priorityclass.yaml"),
        ],
    },
    Template {
        name: "allocator.yaml",
        manifests: &[
            Manifest {
                path: "components/allocator/serviceaccount.yaml",
                condition: "and .Values.allocator.enabled .Values.allocator.serviceAccount.create",
                annotations: "  {{- with .Values.allocator.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
",
            },
            on(ALLOCATOR, "components/allocator/roles.yaml"),
            on(ALLOCATOR, "components/allocator/bindings.yaml"),
            on(ALLOCATOR, "components/allocator/confined.yaml"),
            on(
                "and .Values.allocator.enabled .Values.networkPolicy.enabled",
                "components/allocator/networkpolicy.yaml",
            ),
            on(
                "and .Values.allocator.enabled .Values.podDisruptionBudget.enabled",
                "components/allocator/poddisruptionbudget.yaml",
            ),
        ],
    },
    Template {
        name: "drain.yaml",
        manifests: &[
            Manifest { path: "drain/serviceaccount.yaml", condition: DRAIN, annotations: HOOK },
            Manifest { path: "drain/roles.yaml", condition: DRAIN, annotations: HOOK },
            Manifest { path: "drain/bindings.yaml", condition: DRAIN, annotations: HOOK },
        ],
    },
];

impl Template {
    /// The text of the template; `read` returns a manifest.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn render(&self, read: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<String> {
        let head = "{{- /* Rendered by `cargo xtask gen` from config/; do not edit. */ -}}\n";
        let mut text = vec![head.to_owned()];
        for Manifest { path, condition, annotations } in self.manifests {
            let objects = placed(&read(path)?, annotations);
            text.push(if condition.is_empty() {
                format!("---\n{objects}")
            } else {
                format!("{{{{- if {condition} }}}}\n---\n{objects}{{{{- end }}}}\n")
            });
        }
        Ok(text.concat())
    }
}

/// A manifest for the namespace, the labels and the service accounts of a release.
fn placed(manifest: &str, annotations: &str) -> String {
    let objects: Vec<&str> = manifest.lines().skip_while(|line| line.starts_with(['#', '-'])).collect();
    let mut text = objects.join("\n") + "\n";
    for name in ["dragoman", "dragoman-allocator", "dragoman-drain"] {
        text = text.replace(
            &format!("\n  labels:\n    app.kubernetes.io/name: {name}\n"),
            &format!(
                "\n  labels:\n    {{{{- include \"dragoman.labels\" (dict \"name\" \"{name}\" \"root\" .) | nindent 4 }}}}\n\
                 {annotations}"
            ),
        );
    }
    for (name, value) in [
        ("dragoman", "{{ .Values.serviceAccount.name }}"),
        ("dragoman-allocator", "{{ .Values.allocator.serviceAccount.name }}"),
    ] {
        text = text
            .replace(
                &format!("'system:serviceaccount:kube-system:{name}'"),
                &format!("'system:serviceaccount:{{{{ .Release.Namespace }}}}:{value}'"),
            )
            .replace(
                &format!("- kind: ServiceAccount\n    name: {name}\n"),
                &format!("- kind: ServiceAccount\n    name: {value}\n"),
            )
            .replace(
                &format!("\nkind: ServiceAccount\nmetadata:\n  name: {name}\n"),
                &format!("\nkind: ServiceAccount\nmetadata:\n  name: {value}\n"),
            );
    }
    text.replace("'kube-system'", "'{{ .Release.Namespace }}'")
        .replace("namespace: kube-system\n", "namespace: {{ .Release.Namespace }}\n")
        .replace(
            "values: [kube-system]",
            "values: [kube-system{{ if ne .Release.Namespace \"kube-system\" }}, {{ .Release.Namespace }}{{ end }}]",
        )
        .replace("orValue('') == 'dragoman'", "orValue('') == '{{ .Values.allocator.name }}'")
        .replace("              metrics: enabled\n", "              {{- toYaml (.Values.metrics.fromNamespaces | default (dict \"metrics\" \"enabled\")) | nindent 14 }}\n")
}
