{{- define "jqd.labels" -}}
app.kubernetes.io/name: jqd
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "jqd.selector" -}}
app.kubernetes.io/name: jqd
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "jqd.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "jqd.urls" -}}
{{- $root := . -}}
{{- range $n := until (int .Values.replicas) }}{{ if $n }},{{ end }}http://{{ $root.Release.Name }}-{{ $n }}.{{ $root.Release.Name }}-daemons:7420{{ end }}
{{- end }}

{{- define "jqd.hardened" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
