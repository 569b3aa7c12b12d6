{{- /*
A Deployment: (dict "root" . "name" NAME "container" NAME "account" NAME "replicas" N "args" TEXT "resources" MAP).
What does not depend on values is that of config/base/deployment.yaml; `cargo xtask package-test` compares the two.
*/ -}}
{{- define "dragoman.deployment" -}}
{{- $values := .root.Values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "dragoman.labels" . | nindent 4 }}
spec:
  replicas: {{ .replicas }}
  strategy:
    rollingUpdate:
      maxUnavailable: 1
      maxSurge: 0
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ .name }}
        {{- with $values.extraLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ .account }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      terminationGracePeriodSeconds: 75
      {{- with $values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        {{- if $values.metrics.tls.enabled }}
        fsGroup: 65532
        {{- end }}
        seccompProfile:
          type: RuntimeDefault
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.spreadOver }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: {{ . }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: {{ $.name }}
      {{- end }}
      containers:
        - name: {{ .container }}
          image: {{ include "dragoman.image" .root }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args:
            {{- .args | nindent 12 }}
          ports:
            - name: metrics
              containerPort: 8081
          {{- $scheme := ternary "HTTPS" "HTTP" $values.metrics.tls.enabled }}
          livenessProbe:
            httpGet:
              path: /livez
              port: metrics
              scheme: {{ $scheme }}
            periodSeconds: 20
            timeoutSeconds: 5
          readinessProbe:
            httpGet:
              path: /readyz
              port: metrics
              scheme: {{ $scheme }}
            periodSeconds: 5
          resources:
            {{- toYaml .resources | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          {{- if $values.metrics.tls.enabled }}
          volumeMounts:
            - name: tls
              mountPath: /tls
              readOnly: true
          {{- end }}
      {{- if $values.metrics.tls.enabled }}
      volumes:
        - name: tls
          secret:
            secretName: {{ $values.metrics.tls.secretName }}
            # 0440: readable for the group of the Pod, which is not root.
            defaultMode: 288
      {{- end }}
{{- end -}}
