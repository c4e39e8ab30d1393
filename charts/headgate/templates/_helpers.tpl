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

{{- define "headgate.rulesVolumes" -}}
{{- if include "headgate.ownRules" .root }}
- name: rules
  configMap:
    name: {{ .configMap }}
{{- end }}
{{- range $i, $map := .root.Values.existingConfigMaps }}
- name: rules-{{ $i }}
  configMap:
    name: {{ $map.name }}
{{- end }}
{{- end -}}

{{/* Each a directory inside the rules directory: no mount stands in another. */}}
{{- define "headgate.rulesMounts" -}}
{{- if include "headgate.ownRules" . }}
- name: rules
  mountPath: /etc/headgate/rules/values
  readOnly: true
{{- end }}
{{- range $i, $map := .Values.existingConfigMaps }}
- name: rules-{{ $i }}
  mountPath: /etc/headgate/rules/{{ $map.directory | default $map.name }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "headgate.overlayVolumes" -}}
{{- if .Values.rulesOverlay }}
- name: overlay
  configMap:
    name: {{ include "headgate.fullname" . }}-overlay
{{- end }}
{{- end -}}

{{- define "headgate.overlayMounts" -}}
{{- if .Values.rulesOverlay }}
- name: overlay
  mountPath: /etc/headgate/overlay
  readOnly: true
{{- end }}
{{- end -}}

{{- define "headgate.originVolumes" -}}
{{- if .Values.origin.existingSecret.name }}
- name: origin
  secret:
    secretName: {{ .Values.origin.existingSecret.name }}
    defaultMode: 0440
    items:
      - {key: {{ .Values.origin.existingSecret.key | quote }}, path: url}
{{- else if .Values.origin.passwordSecret.name }}
- name: origin
  secret:
    secretName: {{ .Values.origin.passwordSecret.name }}
    defaultMode: 0440
    items:
      - {key: {{ .Values.origin.passwordSecret.key | quote }}, path: password}
{{- end }}
{{- if .Values.origin.tlsSecret }}
- name: origin-tls
  secret:
    secretName: {{ .Values.origin.tlsSecret }}
    defaultMode: 0440
{{- end }}
{{- if .Values.config }}
- name: config
  configMap:
    name: {{ include "headgate.fullname" . }}-config
{{- end }}
{{- if .Values.exchange.peers }}
- name: peers
  configMap:
    name: {{ include "headgate.fullname" . }}-peers
{{- end }}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end -}}

{{- define "headgate.originMounts" -}}
{{- if or .Values.origin.existingSecret.name .Values.origin.passwordSecret.name }}
- {name: origin, mountPath: /etc/headgate/origin, readOnly: true}
{{- end }}
{{- if .Values.origin.tlsSecret }}
- {name: origin-tls, mountPath: /etc/headgate/origin-tls, readOnly: true}
{{- end }}
{{- if .Values.config }}
- {name: config, mountPath: /etc/headgate/config, readOnly: true}
{{- end }}
{{- if .Values.exchange.peers }}
- {name: peers, mountPath: /etc/headgate/peers, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "headgate.exchangeVolumes" -}}
{{- if .Values.exchange.tls.existingSecret }}
- name: exchange-tls
  secret:
    secretName: {{ .Values.exchange.tls.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- if .Values.exchange.tokens.existingSecret.name }}
- name: exchange-tokens
  secret:
    secretName: {{ .Values.exchange.tokens.existingSecret.name }}
    defaultMode: 0440
    items:
      - {key: {{ .Values.exchange.tokens.existingSecret.key | quote }}, path: tokens}
{{- end }}
{{- end -}}

{{- define "headgate.exchangeMounts" -}}
{{- if .Values.exchange.tls.existingSecret }}
- {name: exchange-tls, mountPath: /etc/headgate/exchange-tls, readOnly: true}
{{- end }}
{{- if .Values.exchange.tokens.existingSecret.name }}
- {name: exchange-tokens, mountPath: /etc/headgate/exchange-tokens, readOnly: true}
{{- end }}
{{- end -}}

{{/* "true" when exchangers of their own speak to other regions. */}}
{{- define "headgate.exchangesApart" -}}
{{- if and .Values.exchange.peers (eq .Values.exchange.mode "separate") -}}true{{- end -}}
{{- end -}}

{{/* "true" when pods of ours run: servers, or exchangers for sidecars. */}}
{{- define "headgate.hasPods" -}}
{{- if or (ne .Values.kind "Sidecar") (include "headgate.exchangesApart" .) -}}true{{- end -}}
{{- end -}}

{{/* "true" when the servers speak to other regions themselves. */}}
{{- define "headgate.exchangesInside" -}}
{{- if and .Values.exchange.peers (eq .Values.exchange.mode "inside") -}}true{{- end -}}
{{- end -}}

{{- define "headgate.serverVolumes" -}}
{{ include "headgate.rulesVolumes" (dict "root" . "configMap" (printf "%s-rules" (include "headgate.fullname" .))) }}
{{- include "headgate.overlayVolumes" . }}
{{- include "headgate.originVolumes" . }}
{{- if include "headgate.exchangesInside" . }}
{{- include "headgate.exchangeVolumes" . }}
{{- end }}
{{- if .Values.rulesSync.enabled }}
- name: rules-synced
  emptyDir: {sizeLimit: 256Mi}
{{- end }}
{{- if .Values.data.enabled }}
- name: data
{{ toYaml .Values.data.volume | indent 2 }}
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ .Values.tls.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- if .Values.tokens.existingSecret.name }}
- name: tokens
  secret:
    secretName: {{ .Values.tokens.existingSecret.name }}
    defaultMode: 0440
    items:
      - {key: {{ .Values.tokens.existingSecret.key | quote }}, path: tokens}
{{- end }}
{{- if and .Values.keys.enabled .Values.keys.tokens.existingSecret.name }}
- name: keys-tokens
  secret:
    secretName: {{ .Values.keys.tokens.existingSecret.name }}
    defaultMode: 0440
    items:
      - {key: {{ .Values.keys.tokens.existingSecret.key | quote }}, path: tokens}
{{- end }}
{{- if and .Values.keys.enabled .Values.keys.tls.existingSecret }}
- name: keys-tls
  secret:
    secretName: {{ .Values.keys.tls.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "headgate.serverMounts" -}}
{{ include "headgate.rulesMounts" . }}
{{- include "headgate.overlayMounts" . }}
{{- include "headgate.originMounts" . }}
{{- if include "headgate.exchangesInside" . }}
{{- include "headgate.exchangeMounts" . }}
{{- end }}
{{- if .Values.rulesSync.enabled }}
- {name: rules-synced, mountPath: /etc/headgate/rules/synced, readOnly: true}
{{- end }}
{{- if .Values.data.enabled }}
- {name: data, mountPath: /var/lib/headgate}
{{- end }}
{{- if .Values.tls.existingSecret }}
- {name: tls, mountPath: /etc/headgate/tls, readOnly: true}
{{- end }}
{{- if .Values.tokens.existingSecret.name }}
- {name: tokens, mountPath: /etc/headgate/tokens, readOnly: true}
{{- end }}
{{- if and .Values.keys.enabled .Values.keys.tokens.existingSecret.name }}
- {name: keys-tokens, mountPath: /etc/headgate/keys-tokens, readOnly: true}
{{- end }}
{{- if and .Values.keys.enabled .Values.keys.tls.existingSecret }}
- {name: keys-tls, mountPath: /etc/headgate/keys-tls, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Alive is the process; ready is the process with rules, its origin, and not draining. */}}
{{- define "headgate.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ max 1 (div (int .Values.startupSeconds) 2) }}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}

{{/* The server's container: `dict "root" $ "grpc" ADDRESS "resources" … "sidecar" BOOL`. */}}
{{- define "headgate.serverContainer" -}}
- name: headgate
  image: {{ include "headgate.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args:
{{ include "headgate.serveArgs" . | indent 4 }}
{{- with .root.Values.extraEnv }}
  env:
{{ toYaml . | indent 4 }}
{{- end }}
  ports:
{{- if not .sidecar }}
    - {name: grpc, containerPort: {{ .root.Values.ports.grpc }}, protocol: TCP}
{{- end }}
    - {name: http, containerPort: {{ .root.Values.ports.http }}, protocol: TCP}
    - {name: admin, containerPort: {{ .root.Values.ports.admin }}, protocol: TCP}
{{- if .root.Values.keys.enabled }}
    - {name: keys, containerPort: {{ .root.Values.ports.keys }}, protocol: TCP}
{{- end }}
{{- if include "headgate.exchangesInside" .root }}
    - {name: exchange, containerPort: {{ .root.Values.ports.exchange }}, protocol: TCP}
{{- end }}
{{ include "headgate.probes" .root | indent 2 }}
  resources:
{{ toYaml .resources | indent 4 }}
  securityContext:
{{ toYaml .root.Values.securityContext | indent 4 }}
  volumeMounts:
{{- if .sidecar }}
    - {name: headgate-socket, mountPath: {{ .root.Values.sidecar.socketDirectory }}}
{{- end }}
{{ include "headgate.serverMounts" .root | trim | indent 4 }}
{{- end -}}

{{/* What keeps a directory of rules, first once and then all the time. */}}
{{- define "headgate.syncInitContainers" -}}
{{- if and .Values.rulesSync.enabled .Values.rulesSync.initContainer }}
initContainers:
{{ include "headgate.syncContainer" (dict "root" . "container" .Values.rulesSync.initContainer) | indent 2 }}
{{- end }}
{{- end -}}

{{/* git-sync and the like: the container as given, with the volume and a security context. */}}
{{- define "headgate.syncContainer" -}}
{{- $mounts := append (.container.volumeMounts | default list) (dict "name" "rules-synced" "mountPath" .root.Values.rulesSync.mountPath) -}}
{{- $context := mergeOverwrite (deepCopy .root.Values.securityContext) (deepCopy .root.Values.rulesSync.securityContext) -}}
{{- $container := mergeOverwrite (dict "securityContext" $context) (deepCopy .container) (dict "volumeMounts" $mounts) -}}
{{ toYaml (list $container) }}
{{- end -}}

{{- define "headgate.podCommon" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{ toYaml . | indent 2 }}
{{- end }}
securityContext:
{{ toYaml .Values.podSecurityContext | indent 2 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}

{{- define "headgate.topologySpread" -}}
{{- if .root.Values.topologySpread.topologyKeys }}
topologySpreadConstraints:
{{- range .root.Values.topologySpread.topologyKeys }}
  - maxSkew: {{ $.root.Values.topologySpread.maxSkew }}
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ $.root.Values.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
{{ include "headgate.selector" $ | indent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Of what needs a restart; of rules and peers not: they are watched. */}}
{{- define "headgate.podAnnotations" -}}
{{- if .Values.config }}
checksum/config: {{ toYaml .Values.config | sha256sum }}
{{- end }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A size in bytes as Kubernetes writes it, in MiB; 0 for what is written otherwise. */}}
{{- define "headgate.mebibytes" -}}
{{- if hasSuffix "Gi" . -}}{{ mul 1024 (trimSuffix "Gi" . | int) }}{{- else if hasSuffix "Mi" . -}}{{ trimSuffix "Mi" . | int }}{{- else -}}0{{- end -}}
{{- end -}}

{{/* A volume that runs over is a pod that is evicted: the log's own bound must come first, with room for what stands beside it. */}}
{{- define "headgate.checkDataVolume" -}}
{{- $size := dig "emptyDir" "sizeLimit" "" .Values.data.volume | toString -}}
{{- $mebibytes := include "headgate.mebibytes" $size | int -}}
{{- $log := div (dig "decision_log_bytes" 1073741824 .Values.config | int64) 1048576 -}}
{{- if and .Values.data.enabled $mebibytes (dig "decision_log" true .Values.config) (lt $mebibytes (add 512 $log | int)) -}}
{{- fail (printf "data.volume.emptyDir.sizeLimit: %s is too small for the decision log (%d MiB, config.decision_log_bytes) and 512 MiB beside it: the pod would be evicted" $size $log) -}}
{{- end -}}
{{- end -}}

{{/* What the filters of `istio` and `envoyGateway` can't do for others. */}}
{{- define "headgate.checkFilter" -}}
{{- if .filter.enabled -}}
{{- if eq .root.Values.kind "Sidecar" -}}
{{- fail (printf "%s.enabled: a gateway asks over the network, and sidecars have no Service; use kind: Deployment" .name) -}}
{{- end -}}
{{- if .root.Values.tokens.existingSecret.name -}}
{{- fail (printf "%s.enabled: the callers' token would stand in the filter for everybody to read; know callers by certificates (tls.clientCertificates), or write the filter yourself (docs/envoy.md)" .name) -}}
{{- end -}}
{{- if and .root.Values.tls.existingSecret (not .filter.transportSocket) -}}
{{- fail (printf "%s.transportSocket: is empty, and Headgate has TLS (tls.existingSecret): say how Envoy speaks it" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A sidecar is one process in a pod that is not the chart's. */}}
{{- define "headgate.checkSidecar" -}}
{{- if eq .Values.kind "Sidecar" -}}
{{- if gt (int .Values.workers) 1 -}}
{{- fail "workers: a sidecar has one socket, so it is one process" -}}
{{- end -}}
{{- if include "headgate.exchangesInside" . -}}
{{- fail "exchange.mode: other regions can't reach sidecars; use separate, which installs exchangers beside them" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* An older Kubernetes would drop the field without a word, and lead callers anywhere. */}}
{{- define "headgate.checkTraffic" -}}
{{- $wanted := .Values.service.trafficDistribution -}}
{{- $since := ternary "1.31.0-0" "1.34.0-0" (eq $wanted "PreferClose") -}}
{{- if and $wanted (not (semverCompare (printf ">=%s" $since) .Capabilities.KubeVersion.Version)) -}}
{{- fail (printf "service.trafficDistribution: %s needs Kubernetes %s, and this one is %s" $wanted (trimSuffix ".0-0" $since) .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (eq .Values.service.internalTrafficPolicy "Local") (ne .Values.kind "DaemonSet") -}}
{{- fail "service.internalTrafficPolicy: Local leads callers nowhere on machines without a pod; use kind: DaemonSet, or service.trafficDistribution" -}}
{{- end -}}
{{- end -}}

{{/* What no schema can say, because it is about two values. */}}
{{- define "headgate.check" -}}
{{- include "headgate.checkSidecar" . -}}
{{- include "headgate.checkDataVolume" . -}}
{{- include "headgate.checkTraffic" . -}}
{{- include "headgate.checkFilter" (dict "root" . "name" "istio" "filter" .Values.istio) -}}
{{- include "headgate.checkFilter" (dict "root" . "name" "envoyGateway" "filter" .Values.envoyGateway) -}}
{{- $several := or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled (eq .Values.kind "DaemonSet") -}}
{{- if and (include "headgate.alone" .) $several (not .Values.origin.countAlone) (ne .Values.kind "Sidecar") -}}
{{- fail "origin.url: memory:// counts in one pod alone; several pods need a Redis (origin.url: redis://…, or devRedis.enabled to try it), or say origin.countAlone: true" -}}
{{- end -}}
{{- if and (include "headgate.alone" .) (gt (int .Values.workers) 1) -}}
{{- fail "workers: several processes can't share memory://; set origin.url" -}}
{{- end -}}
{{- if and (regexMatch "://[^/?]*@" .Values.origin.url) (not (or .Values.origin.passwordSecret.name .Values.origin.existingSecret.name (contains "password_file=" .Values.origin.url))) -}}
{{- fail "origin.url: names a user, and there is no password: origin.passwordSecret.name" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (ne .Values.kind "Deployment") -}}
{{- fail "autoscaling.enabled: only a Deployment can be scaled" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas: is more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if hasKey .Values.exchange.peers .Values.region -}}
{{- fail (printf "exchange.peers.%s: is this region itself; name only the others" .Values.region) -}}
{{- end -}}
{{- if and .Values.exchange.peers (not .Values.exchange.tls.existingSecret) (not .Values.exchange.tokens.existingSecret.name) (not .Values.exchange.insecure) -}}
{{- fail "exchange.peers: regions must prove who they are: exchange.tls.existingSecret or exchange.tokens.existingSecret.name (or exchange.insecure: true)" -}}
{{- end -}}
{{- if and (include "headgate.exchangesApart" .) (include "headgate.alone" .) -}}
{{- fail "exchange.mode: separate: memory:// is inside one process, which no other can reach; set origin.url, or exchange.mode: inside" -}}
{{- end -}}
{{- if and .Values.tls.clientCertificates (not .Values.tls.existingSecret) -}}
{{- fail "tls.clientCertificates: needs tls.existingSecret" -}}
{{- end -}}
{{- if and .Values.tls.clientNames (not .Values.tls.clientCertificates) -}}
{{- fail "tls.clientNames: needs tls.clientCertificates" -}}
{{- end -}}
{{- if and .Values.rulesSync.enabled (not .Values.rulesSync.container) -}}
{{- fail "rulesSync.container: is empty; describe the container that keeps the rules, or say rulesSync.enabled: false" -}}
{{- end -}}
{{- if and .Values.rulesSync.enabled (not .Values.rulesSync.initContainer) (not .Values.rules) (not .Values.existingConfigMaps) -}}
{{- fail "rulesSync.initContainer: is empty, and there are no other rules: a server that finds none does not start" -}}
{{- end -}}
{{- if gt (len (toYaml .Values.rules)) 1000000 -}}
{{- fail "rules: are more than a ConfigMap holds (1 MiB); use existingConfigMaps, one per team, or rulesSync" -}}
{{- end -}}
{{- if and .Values.keys.enabled (not .Values.keys.tokens.existingSecret.name) (not .Values.keys.tls.clientCertificates) -}}
{{- fail "keys.enabled: who changes a limit must be known: keys.tokens.existingSecret.name or keys.tls.clientCertificates" -}}
{{- end -}}
{{- if and .Values.keys.tls.clientCertificates (not .Values.keys.tls.existingSecret) -}}
{{- fail "keys.tls.clientCertificates: needs keys.tls.existingSecret" -}}
{{- end -}}
{{- $ports := list .Values.ports.grpc .Values.ports.http .Values.ports.admin .Values.ports.exchange .Values.ports.keys -}}
{{- if ne (len (uniq $ports)) 5 -}}
{{- fail "ports: each must be another one" -}}
{{- end -}}
{{- end -}}
