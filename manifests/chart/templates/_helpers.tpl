{{/* Labels of every object. */}}
{{- define "kube-ipvs.labels" -}}
app.kubernetes.io/name: kube-ipvs
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: node-proxy
app.kubernetes.io/part-of: kube-ipvs
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The ConfigMap that the pods mount. */}}
{{- define "kube-ipvs.configMap" -}}
{{- if .Values.kubeProxy.takeover }}{{ .Values.kubeProxy.configMap }}{{ else }}kube-ipvs{{ end }}
{{- end }}
