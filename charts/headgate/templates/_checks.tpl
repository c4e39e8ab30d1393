{{/* A size in bytes as Kubernetes writes it, in MiB; 0 for what is written otherwise. */}}
{{- define "headgate.mebibytes" -}}
{{- if hasSuffix "Gi" . -}}{{ mul 1024 (trimSuffix "Gi" . | int) }}{{- else if hasSuffix "Mi" . -}}{{ trimSuffix "Mi" . | int }}{{- else -}}0{{- end -}}
{{- end -}}

{{/* A volume that runs over is a pod that is evicted: the log's own bound must come first, with room for what stands beside it. */}}
{{- define "headgate.checkDataVolume" -}}
{{- $claim := eq .Values.kind "StatefulSet" -}}
{{- if and $claim (not .Values.data.enabled) -}}
{{- fail "data.enabled: is false, and keeping data is all that a StatefulSet is for; use kind: Deployment" -}}
{{- end -}}
{{- $size := ternary .Values.data.claim.size (dig "emptyDir" "sizeLimit" "" .Values.data.volume) $claim | toString -}}
{{- $mebibytes := include "headgate.mebibytes" $size | int -}}
{{- $log := div (dig "decision_log_bytes" 1073741824 .Values.config | int64) 1048576 -}}
{{- if and .Values.data.enabled $mebibytes (dig "decision_log" true .Values.config) (lt $mebibytes (add 512 $log | int)) -}}
{{- fail (printf "%s: %s is too small for the decision log (%d MiB, config.decision_log_bytes) and 512 MiB beside it: %s" (ternary "data.claim.size" "data.volume.emptyDir.sizeLimit" $claim) $size $log (ternary "decisions would go unlogged" "the pod would be evicted" $claim)) -}}
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

{{/* The name that a JSON Schema has for what a value is. */}}
{{- define "headgate.typeOf" -}}
{{- $names := dict "map" "object" "slice" "array" "string" "string" "bool" "boolean" "invalid" "null" -}}
{{- if hasKey $names (kindOf .) -}}{{ get $names (kindOf .) }}{{- else if eq (floor .) (float64 .) -}}integer{{- else -}}number{{- end -}}
{{- end -}}

{{/* Refuse what a part of the schema of rules does not allow: `dict "path" TEXT "value" … "schema" … "all" THE-WHOLE`. */}}
{{- define "headgate.checkAgainst" -}}
{{- $path := .path -}}
{{- $value := .value -}}
{{- $schema := .schema -}}
{{- with get $schema "$ref" -}}{{- $schema = get (get $.all "$defs") (base .) -}}{{- end -}}
{{- $type := include "headgate.typeOf" $value -}}
{{- with $schema.type -}}
{{- $types := ternary (list .) . (kindIs "string" .) -}}
{{- if not (or (has $type $types) (and (eq $type "integer") (has "number" $types))) -}}
{{- fail (printf "%s: must be %s, found %s" $path (join ", " (without $types "null")) (toJson $value | trunc 60)) -}}
{{- end -}}
{{- end -}}
{{- with $schema.enum -}}
{{- if not (has $value .) -}}
{{- fail (printf "%s: must be one of %s, found %s" $path (join ", " (without . nil)) (toJson $value | trunc 60)) -}}
{{- end -}}
{{- end -}}
{{- if and (hasKey $schema "minimum") (eq $type "integer") -}}
{{- if or (lt (float64 $value) (float64 $schema.minimum)) (gt (float64 $value) (float64 $schema.maximum)) -}}
{{- fail (printf "%s: must be from %.0f to %.0f, found %s" $path (float64 $schema.minimum) (float64 $schema.maximum) (toJson $value)) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $type "object") (hasKey $schema "properties") -}}
{{- range $schema.required -}}
{{- if not (hasKey $value .) -}}{{- fail (printf "%s: has no %s" $path .) -}}{{- end -}}
{{- end -}}
{{- range $name, $inner := $value -}}
{{- if not (hasKey $schema.properties $name) -}}
{{- fail (printf "%s: unknown key %s; accepted: %s" $path $name (keys $schema.properties | sortAlpha | join ", ")) -}}
{{- end -}}
{{- include "headgate.checkAgainst" (dict "path" (printf "%s.%s" $path $name) "value" $inner "schema" (get $schema.properties $name) "all" $.all) -}}
{{- end -}}
{{- else if eq $type "array" -}}
{{- range $place, $inner := $value -}}
{{- include "headgate.checkAgainst" (dict "path" (printf "%s.%d" $path $place) "value" $inner "schema" $schema.items "all" $.all) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Files that are text, as from --set-file, are checked as far as those that are a mapping: Helm's schema can't look into a text.
     `dict "name" "rules" "files" .Values.rules "schema" SCHEMA`. */}}
{{- define "headgate.checkTexts" -}}
{{- range $name, $text := .files -}}
{{- if kindIs "string" $text -}}
{{- $file := fromYaml $text -}}
{{- if hasKey $file "Error" -}}
{{- fail (printf "%s.%s: is no YAML mapping: %s" $.name $name $file.Error) -}}
{{- end -}}
{{- if and (eq $.name "rules") (not (hasKey $file "descriptors")) -}}
{{- fail (printf "rules.%s: has no descriptors" $name) -}}
{{- end -}}
{{- include "headgate.checkAgainst" (dict "path" (printf "%s.%s" $.name $name) "value" $file "schema" $.schema "all" $.schema) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "headgate.checkRules" -}}
{{- if gt (len (toYaml .Values.rules)) 1000000 -}}
{{- fail "rules: are more than a ConfigMap holds (1 MiB); use existingConfigMaps, one per team, or rulesSync" -}}
{{- end -}}
{{- include "headgate.checkTexts" (dict "name" "rules" "files" .Values.rules "schema" (.Files.Get "files/rules.schema.json" | fromJson)) -}}
{{- include "headgate.checkTexts" (dict "name" "rulesOverlay" "files" .Values.rulesOverlay "schema" (.Files.Get "files/overlay.schema.json" | fromJson)) -}}
{{- end -}}

{{/* Our own policy must not cut off what these values need; what can't be known must be said. */}}
{{- define "headgate.checkNetwork" -}}
{{- if and .Values.networkPolicy.enabled (include "headgate.hasPods" .) -}}
{{- if not (or .Values.networkPolicy.redisPorts .Values.devRedis.enabled) -}}
{{- if .Values.origin.existingSecret.name -}}
{{- fail "networkPolicy.redisPorts: is empty, and the URL is in a Secret (origin.existingSecret), which the chart can't read: say at which ports Redis is, such as [6379]; with Sentinels theirs too, such as [6379, 26379]" -}}
{{- else if contains "+sentinel://" .Values.origin.url -}}
{{- fail "networkPolicy.redisPorts: is empty, and origin.url names the Sentinels alone: say at which ports the servers are that they name, such as [6379]" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.networkPolicy.operators) -}}
{{- fail (printf "networkPolicy.operators: is empty, so Prometheus in another namespace can't reach port %d (serviceMonitor.enabled): name its namespace, [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}], or this one, [{podSelector: {}}]" (int .Values.ports.admin)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* How many pods there are at least. */}}
{{- define "headgate.leastPods" -}}
{{- ternary .Values.autoscaling.minReplicas .Values.replicas .Values.autoscaling.enabled | int -}}
{{- end -}}

{{/* A budget that lets no pod go stops every drain of a machine. */}}
{{- define "headgate.checkDisruption" -}}
{{- $least := .Values.podDisruptionBudget.minAvailable | toString -}}
{{- $pods := include "headgate.leastPods" . | int -}}
{{- if and .Values.podDisruptionBudget.enabled (include "headgate.counted" .) (not .Values.autoscaling.external) -}}
{{- if or (eq $least "100%") (and (regexMatch "^[0-9]+$" $least) $pods (ge (int $least) $pods)) -}}
{{- fail (printf "podDisruptionBudget.minAvailable: %s of %d pods: none may ever be away, so no machine could be drained" $least $pods) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fields that Kubernetes refuses beside the type of Service: `dict "name" "service" "service" .Values.service`. */}}
{{- define "headgate.checkService" -}}
{{- range list "loadBalancerClass" "loadBalancerSourceRanges" -}}
{{- if and (get $.service .) (ne $.service.type "LoadBalancer") -}}
{{- fail (printf "%s.%s: needs %s.type: LoadBalancer" $.name . $.name) -}}
{{- end -}}
{{- end -}}
{{- if and .service.externalTrafficPolicy (eq .service.type "ClusterIP") -}}
{{- fail (printf "%s.externalTrafficPolicy: needs %s.type: LoadBalancer or NodePort" .name .name) -}}
{{- end -}}
{{- end -}}

{{/* What no schema can say, because it is about two values. */}}
{{- define "headgate.check" -}}
{{- include "headgate.checkSidecar" . -}}
{{- include "headgate.checkRules" . -}}
{{- include "headgate.checkNetwork" . -}}
{{- include "headgate.checkDisruption" . -}}
{{- include "headgate.checkService" (dict "name" "service" "service" .Values.service) -}}
{{- include "headgate.checkService" (dict "name" "exchange.service" "service" .Values.exchange.service) -}}
{{- include "headgate.checkDataVolume" . -}}
{{- include "headgate.checkTraffic" . -}}
{{- include "headgate.checkFilter" (dict "root" . "name" "istio" "filter" .Values.istio) -}}
{{- include "headgate.checkFilter" (dict "root" . "name" "envoyGateway" "filter" .Values.envoyGateway) -}}
{{- $several := or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled .Values.autoscaling.external (eq .Values.kind "DaemonSet") -}}
{{- if and (include "headgate.alone" .) $several (not .Values.origin.countAlone) (ne .Values.kind "Sidecar") -}}
{{- fail "origin.url: memory:// counts in one pod alone; several pods need a Redis (origin.url: redis://…, or devRedis.enabled to try it), or say origin.countAlone: true" -}}
{{- end -}}
{{- if and (include "headgate.alone" .) (gt (int .Values.workers) 1) -}}
{{- fail "workers: several processes can't share memory://; set origin.url" -}}
{{- end -}}
{{- if and (regexMatch "://[^/?]*@" .Values.origin.url) (not (or .Values.origin.passwordSecret.name .Values.origin.existingSecret.name (contains "password_file=" .Values.origin.url))) -}}
{{- fail "origin.url: names a user, and there is no password: origin.passwordSecret.name" -}}
{{- end -}}
{{- if and (or .Values.autoscaling.enabled .Values.autoscaling.external) (not (include "headgate.counted" .)) -}}
{{- fail "autoscaling: only a Deployment or a StatefulSet can be scaled" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled .Values.autoscaling.external -}}
{{- fail "autoscaling.external: leaves scaling to somebody else, and autoscaling.enabled does it here: choose one" -}}
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
{{- if and .Values.keys.enabled (not .Values.keys.tokens.existingSecret.name) (not .Values.keys.tls.clientCertificates) -}}
{{- fail "keys.enabled: who changes a limit must be known: keys.tokens.existingSecret.name or keys.tls.clientCertificates" -}}
{{- end -}}
{{- if and .Values.keys.tls.clientCertificates (not .Values.keys.tls.existingSecret) -}}
{{- fail "keys.tls.clientCertificates: needs keys.tls.existingSecret" -}}
{{- end -}}
{{- if and .Values.plane.enabled (not .Values.plane.tokens.existingSecret.name) -}}
{{- fail "plane.enabled: who changes rules must be known: plane.tokens.existingSecret.name" -}}
{{- end -}}
{{- if and .Values.plane.upstream .Values.plane.postgresql.existingSecret.name -}}
{{- fail "plane.postgresql: is for roots, and with plane.upstream these are relays, each with a log on its volume: choose one" -}}
{{- end -}}
{{- if and .Values.plane.postgresql.tlsSecret (not .Values.plane.postgresql.existingSecret.name) -}}
{{- fail "plane.postgresql.tlsSecret: needs plane.postgresql.existingSecret.name, the URL that names its files" -}}
{{- end -}}
{{- if and (or .Values.plane.upstream (hasPrefix "plane://" .Values.rulesFrom)) (not .Values.planeToken.existingSecret.name) -}}
{{- fail "planeToken.existingSecret.name: a plane is followed by those who show a token" -}}
{{- end -}}
{{- /* As text: a number of --set and the same one of a file are different things to `uniq`. */ -}}
{{- $ports := dict -}}
{{- range .Values.ports }}{{ $ports = set $ports (toString .) true }}{{ end -}}
{{- if ne (len $ports) (len .Values.ports) -}}
{{- fail "ports: each must be another one" -}}
{{- end -}}
{{- end -}}
