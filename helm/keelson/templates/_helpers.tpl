{{- define "keelson.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "keelson.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "keelson.labels" -}}
{{ include "keelson.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "keelson.certs" -}}
{{ .Values.certsSecret | default (printf "%s-certs" (include "keelson.name" .)) }}
{{- end }}

{{- /* True if the server makes its own keys and certificates. */}}
{{- define "keelson.own" -}}
{{- if not (has .Values.certs.by (list "helm" "server")) }}{{ fail "certs.by is helm or server" }}{{ end }}
{{- and (not .Values.certsSecret) (eq .Values.certs.by "server") }}
{{- end }}

{{- define "keelson.host" -}}
{{ include "keelson.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}
