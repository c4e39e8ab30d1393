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
{{- if and .Values.data.enabled (ne .Values.kind "StatefulSet") }}
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
{{- include "headgate.planeClientVolumes" . }}
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
{{- include "headgate.planeClientMounts" . }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What a pod shows to the plane that it follows. */}}
{{- define "headgate.planeClientArgs" -}}
{{- if .Values.planeToken.existingSecret.name }}
- --plane-token-file
- /etc/headgate/plane-token/token
{{- end }}
{{- end -}}

{{- define "headgate.planeClientMounts" -}}
{{- if .Values.planeToken.existingSecret.name }}
- {name: plane-token, mountPath: /etc/headgate/plane-token, readOnly: true}
{{- end }}
{{- end -}}

{{- define "headgate.planeClientVolumes" -}}
{{- if .Values.planeToken.existingSecret.name }}
- name: plane-token
  secret:
    secretName: {{ .Values.planeToken.existingSecret.name }}
    defaultMode: 0440
    items:
      - {key: {{ .Values.planeToken.existingSecret.key | quote }}, path: token}
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

{{/* Those of the values, then what fetches rules once: `dict "root" $ "extra" LIST`. */}}
{{- define "headgate.initContainers" -}}
{{- $sync := and .root.Values.rulesSync.enabled .root.Values.rulesSync.initContainer -}}
{{- if or .extra $sync }}
initContainers:
{{- with .extra }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $sync }}
{{ include "headgate.syncContainer" (dict "root" $.root "container" .) | indent 2 }}
{{- end }}
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
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
{{ toYaml . | indent 2 }}
{{- end }}
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
