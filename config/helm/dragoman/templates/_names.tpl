{{- /* The labels of an object of a part: (dict "name" PART "root" .) */ -}}
{{- define "dragoman.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Without an image that exists the Pods, and the Job that uninstalls, would wait for ever. Gating needs an API that older clusters
      do not have; their answer would name a policy, not the value. */ -}}
{{- define "dragoman.checked" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: name your image. No registry has one of this project: `cargo xtask image --push REPOSITORY:TAG` builds yours; an image that was loaded into the nodes has the repository `dragoman`. At an upgrade, --reuse-values keeps the image of the installation" -}}
{{- end -}}
{{- if and .Values.gating.enabled (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "gating.enabled: Kubernetes %s has no MutatingAdmissionPolicy (admissionregistration.k8s.io/v1); it takes 1.36" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and .Values.deleteUnbound.enabled (not .Values.gating.enabled) -}}
{{- fail "deleteUnbound.enabled: needs gating.enabled, because Pods without a gate are bound by kube-scheduler alone" -}}
{{- end -}}
{{- end -}}

{{- define "dragoman.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The arguments of `dragoman run`. */ -}}
{{- define "dragoman.args" -}}
- run
{{- if ne .Values.mode "auto" }}
- --mode={{ .Values.mode }}
{{- end }}
{{- if .Values.gating.enabled }}
- --controllers=*,gates
{{- end }}
{{- if .Values.holders.enabled }}
- --controllers=*,holders
{{- end }}
{{- if .Values.deleteUnbound.enabled }}
- --delete-unbound-after={{ .Values.deleteUnbound.afterSeconds | int }}
{{- end }}
{{- if .Values.allocator.enabled }}
- --default-allocator={{ .Values.allocator.name }}
{{- end }}
{{- if .Values.gating.enabled }}
{{- with .Values.gating.laterGates }}
- --later-gates={{ join "," . }}
{{- end }}
{{- end }}
{{- include "dragoman.tlsArgs" . }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The arguments of `dragoman allocator`. */ -}}
{{- define "dragoman.allocatorArgs" -}}
- allocator
{{- if ne .Values.allocator.name "dragoman" }}
- --name={{ .Values.allocator.name }}
{{- end }}
{{- if ne .Values.allocator.order "pack" }}
- --order={{ .Values.allocator.order }}
{{- end }}
{{- if ne .Values.allocator.choose "best-fit" }}
- --choose={{ .Values.allocator.choose }}
{{- end }}
{{- if ne .Values.allocator.align "preferred" }}
- --align={{ .Values.allocator.align }}
{{- end }}
{{- with .Values.gating.laterGates }}
- --later-gates={{ join "," . }}
{{- end }}
{{- include "dragoman.tlsArgs" . }}
{{- with .Values.allocator.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "dragoman.tlsArgs" -}}
{{- if .Values.metrics.tls.enabled }}
- --admin-tls-cert=/tls/tls.crt
- --admin-tls-key=/tls/tls.key
{{- end }}
{{- end -}}
