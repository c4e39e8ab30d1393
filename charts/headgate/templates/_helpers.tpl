{{- define "headgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "headgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "headgate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "headgate.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "headgate.selector" -}}
app.kubernetes.io/name: {{ include "headgate.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object: `dict "root" $ "component" "server"`. */}}
{{- define "headgate.labels" -}}
{{ include "headgate.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of an object: `dict "root" $ "component" "server"`, and where they differ `suffix` of the name or all of `name`, `namespace`, `labels`, `annotations`. */}}
{{- define "headgate.metadata" -}}
name: {{ .name | default (print (include "headgate.fullname" .root) (.suffix | default "")) }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels:
{{ include "headgate.labels" . | indent 2 }}
{{- with .labels }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- with include "headgate.annotations" . }}{{ . | nindent 0 }}{{- end }}
{{- end -}}

{{/* Those of everything, and those of this object, which win. */}}
{{- define "headgate.annotations" -}}
{{- with mergeOverwrite (deepCopy .root.Values.commonAnnotations) (deepCopy (.annotations | default dict)) -}}
annotations:
{{ toYaml . | indent 2 }}
{{- end -}}
{{- end -}}

{{- define "headgate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "headgate.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "headgate.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "headgate.bind" -}}
{{ if .Values.dualStack }}[::]{{ else }}0.0.0.0{{ end }}
{{- end -}}

{{/* "true" when pods count by themselves. */}}
{{- define "headgate.alone" -}}
{{- if and (hasPrefix "memory://" .Values.origin.url) (not .Values.origin.existingSecret.name) (not .Values.devRedis.enabled) -}}true{{- end -}}
{{- end -}}

{{- define "headgate.originUrl" -}}
{{- if .Values.origin.existingSecret.name -}}
file:/etc/headgate/origin/url
{{- else if .Values.devRedis.enabled -}}
redis://{{ include "headgate.fullname" . }}-redis.{{ .Release.Namespace }}:6379
{{- else -}}
{{- $url := .Values.origin.url -}}
{{- $more := list -}}
{{- if .Values.origin.passwordSecret.name -}}{{- $more = append $more "password_file=/etc/headgate/origin/password" -}}{{- end -}}
{{- if .Values.origin.tlsSecret -}}{{- $more = append $more "ca=/etc/headgate/origin-tls/ca.crt" -}}{{- end -}}
{{- if $more -}}
{{ $url }}{{ if contains "?" $url }}&{{ else }}?{{ end }}{{ join "&" $more }}
{{- else -}}
{{ $url }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "headgate.ipFamilies" -}}
{{- if .Values.dualStack }}
ipFamilyPolicy: PreferDualStack
{{- end }}
{{- end -}}

{{/* What every process of a region is told, server and exchanger alike. */}}
{{- define "headgate.commonArgs" -}}
- --region
- {{ .Values.region | quote }}
{{- if .Values.rulesOverlay }}
- --rules-overlay
- /etc/headgate/overlay
{{- end }}
- --origin
- {{ include "headgate.originUrl" . | quote }}
{{- if .Values.origin.prefix }}
- --redis-prefix
- {{ .Values.origin.prefix | quote }}
{{- end }}
{{- if not (include "headgate.alone" .) }}
- --wait-for-origin
- {{ .Values.origin.waitSeconds | quote }}
{{- end }}
- --http
- "{{ include "headgate.bind" . }}:{{ .Values.ports.http }}"
- --admin
- "{{ include "headgate.bind" . }}:{{ .Values.ports.admin }}"
- --drain-s
- {{ .Values.drainSeconds | quote }}
{{- if .Values.exchange.peers }}
- --peer-file
- /etc/headgate/peers/peers
{{- end }}
{{- if .Values.config }}
- --config
- /etc/headgate/config/headgate.yaml
{{- end }}
{{- end -}}

{{- define "headgate.exchangeArgs" -}}
- --exchange
- "{{ include "headgate.bind" . }}:{{ .Values.ports.exchange }}"
{{- if .Values.exchange.tls.existingSecret }}
- --exchange-tls-cert
- /etc/headgate/exchange-tls/tls.crt
- --exchange-tls-key
- /etc/headgate/exchange-tls/tls.key
- --exchange-tls-ca
- /etc/headgate/exchange-tls/ca.crt
{{- end }}
{{- if .Values.exchange.tokens.existingSecret.name }}
- --exchange-token-file
- /etc/headgate/exchange-tokens/tokens
{{- end }}
{{- if .Values.exchange.insecure }}
- --exchange-insecure
{{- end }}
{{- end -}}

{{/* Arguments of the server: `dict "root" $ "grpc" ADDRESS`. */}}
{{- define "headgate.serveArgs" -}}
- serve
- --rules
- {{ .root.Values.rulesFrom | default "/etc/headgate/rules" | quote }}
- --grpc
- {{ .grpc | quote }}
{{ include "headgate.commonArgs" .root }}
- --origin-deadline-ms
- {{ .root.Values.origin.deadlineMs | quote }}
- --max-connection-age-s
- {{ .root.Values.maxConnectionAgeSeconds | int | quote }}
{{- if gt (int .root.Values.workers) 1 }}
- --workers
- {{ .root.Values.workers | quote }}
{{- end }}
{{- range .root.Values.trustedNetworks }}
- --trusted-network
- {{ . | quote }}
{{- end }}
{{- if .root.Values.data.enabled }}
- --data-dir
- /var/lib/headgate
{{- end }}
{{- if hasPrefix "unix:" .grpc }}
- --socket-mode
- "0660"
{{- else if .root.Values.tls.existingSecret }}
- --tls-cert
- /etc/headgate/tls/tls.crt
- --tls-key
- /etc/headgate/tls/tls.key
{{- if .root.Values.tls.clientCertificates }}
- --tls-client-ca
- /etc/headgate/tls/ca.crt
{{- range .root.Values.tls.clientNames }}
- --tls-client-san
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if .root.Values.tokens.existingSecret.name }}
- --token-file
- /etc/headgate/tokens/tokens
{{- end }}
{{- include "headgate.planeClientArgs" .root }}
{{- with .root.Values.keys }}
{{- if .enabled }}
- --admin-grpc
- "{{ include "headgate.bind" $.root }}:{{ $.root.Values.ports.keys }}"
{{- if .tokens.existingSecret.name }}
- --admin-token-file
- /etc/headgate/keys-tokens/tokens
{{- end }}
{{- if .tls.existingSecret }}
- --admin-tls-cert
- /etc/headgate/keys-tls/tls.crt
- --admin-tls-key
- /etc/headgate/keys-tls/tls.key
{{- if .tls.clientCertificates }}
- --admin-tls-client-ca
- /etc/headgate/keys-tls/ca.crt
{{- range .tls.clientNames }}
- --admin-tls-client-san
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if .root.Values.exchange.peers }}
{{- if eq .root.Values.exchange.mode "inside" }}
{{ include "headgate.exchangeArgs" .root }}
{{- else }}
- --exchange-inside
- "false"
{{- end }}
{{- end }}
{{- end -}}

{{/* The rules of the values, by file name; an example while there are none at all, so that there is something to ask. */}}
{{- define "headgate.ownRules" -}}
{{- if .Values.rules -}}
{{ toYaml .Values.rules }}
{{- else if not (or .Values.existingConfigMaps .Values.rulesSync.enabled) -}}
{{ .Files.Get "files/example-rules.yaml" }}
{{- end -}}
{{- end -}}

{{/* "true" when exchangers of their own speak to other regions. */}}
{{- define "headgate.exchangesApart" -}}
{{- if and .Values.exchange.peers (eq .Values.exchange.mode "separate") -}}true{{- end -}}
{{- end -}}

{{/* "true" when there is a number of pods that can be asked for. */}}
{{- define "headgate.counted" -}}
{{- if has .Values.kind (list "Deployment" "StatefulSet") -}}true{{- end -}}
{{- end -}}

{{/* "true" when pods of ours run: servers, or exchangers for sidecars. */}}
{{- define "headgate.hasPods" -}}
{{- if or (ne .Values.kind "Sidecar") (include "headgate.exchangesApart" .) -}}true{{- end -}}
{{- end -}}

{{/* "true" when the servers speak to other regions themselves. */}}
{{- define "headgate.exchangesInside" -}}
{{- if and .Values.exchange.peers (eq .Values.exchange.mode "inside") -}}true{{- end -}}
{{- end -}}
