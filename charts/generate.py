"""Writes what follows from others: `make docs` runs it, and a test fails until it has.

- charts/headgate/README.md, from values.yaml: every value with the comment above it (`# -- …`) and its default.
- charts/headgate/values.schema.json: the shape of values.yaml, with `RULES` for what its defaults can't say, and
  `config` from the table of settings, so that a mistake in either is refused with the key's name before anything runs.
- charts/headgate/files/alerts.yaml, dashboard.json and the schemas of rules and overlays, which are those of
  examples/prometheus, examples/grafana and docs.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from headgate.config.kinds import Boolean, Choice, ListOf, Number, SettingKind, Text, Whole
from headgate.config.settings import SETTINGS
from headgate.rules.schema import overlay_schema, rules_schema

CHART = Path(__file__).parent / "headgate"
EXAMPLES = Path(__file__).parents[1] / "examples"
COPIED = {
    "alerts.yaml": EXAMPLES / "prometheus" / "alerts.yaml",
    "dashboard.json": EXAMPLES / "grafana" / "headgate.json",
    **{name: EXAMPLES.parent / "docs" / name for name in ("rules.schema.json", "overlay.schema.json")},
}
"""A chart can't read outside of itself."""

Schema = dict[str, Any]

SET_BY_THE_CHART = frozenset(
    (
        *("rules", "grpc", "http", "admin", "socket_mode", "region", "origin", "redis_prefix", "wait_for_origin"),
        *("origin_deadline_ms", "workers", "data_dir", "drain_s", "peer", "peer_file", "exchange", "exchange_tls_cert"),
        *("exchange_tls_key", "exchange_tls_ca", "exchange_token_file", "exchange_insecure", "exchange_inside"),
        *("tls_cert", "tls_key", "tls_client_ca", "tls_client_san", "token_file", "trusted_network"),
        *("max_connection_age_s", "node_id", "admin_grpc", "admin_token_file", "admin_tls_cert", "admin_tls_key"),
        *("admin_tls_client_ca", "admin_tls_client_san", "rules_overlay", "upstream", "promote", "plane_rights_file"),
        *("plane_token_file", "plane_store"),
    )
)
"""Settings that have values of their own: in `config` they would be overruled by a flag, silently."""

NAME = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
OBJECT_NAME = "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
OPTIONAL_NAME = f"^$|{OBJECT_NAME}"
RULES_FILE = "rules_file"
OVERLAY_FILE = "overlay_file"
KEY = "^[A-Za-z0-9._-]{1,253}$"
ORIGIN = "^(memory://|rediss?(\\+cluster|\\+sentinel)?://[^/]+.*)$"
PORT = {"type": "integer", "minimum": 1024, "maximum": 65535}
FREE: Schema = {"type": "object"}
STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
TEXTS: Schema = {"type": "array", "items": {"type": "string", "minLength": 1}}
SECRET_IN_PLAIN: Schema = {
    "required": ["value"],
    "properties": {"name": {"pattern": "(?i)(password|passwd|secret|token|credential)[^_]*$|^OTEL_.*HEADERS$"}},
}
SETTING: Schema = {"properties": {"name": {"pattern": "^HEADGATE_"}}}


def refused(condition: Schema, instead: str) -> Schema:
    """Helm can't be given a message, but it shows what the value should have been."""
    return {"if": condition, "then": {"const": instead}}


def text(pattern: str, meaning: str = "") -> Schema:
    """With what it means in words, where the pattern alone would puzzle."""
    words = refused({"not": {"pattern": pattern}}, meaning) if meaning else {}
    return {"type": "string", "pattern": pattern, **words}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def whole(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def files_by_name(definition: str) -> Schema:
    """Files that become a ConfigMap, each as a mapping or as text."""
    return {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*\\.ya?ml$"},
        "additionalProperties": {
            "type": ["object", "string"],
            "if": {"type": "object"},
            "then": {"$ref": f"#/definitions/{definition}"},
        },
    }


NETWORKS: Schema = {"type": "array", "items": text("^[0-9a-fA-F.:]+(/[0-9]{1,3})?$", "a network such as 10.0.0.0/8")}
LOAD_BALANCER_CLASS = text("^$|^[A-Za-z0-9./_-]+$")

RULES: Mapping[str, Schema] = {
    "kind": one_of("Deployment", "StatefulSet", "DaemonSet", "Sidecar"),
    "replicas": whole(0, 1000),
    "nameOverride": text("^$|^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"),
    "fullnameOverride": text("^$|^[a-z]([a-z0-9-]*[a-z0-9])?$"),
    "commonLabels": STRINGS,
    "commonAnnotations": STRINGS,
    "workloadAnnotations": STRINGS,
    "image.repository": text("^[^\\s:@]+(:[0-9]+/[^\\s:@]+)?$"),
    "image.digest": text("^$|^sha256:[0-9a-f]{64}$", "sha256: and 64 digits of 0-9a-f"),
    "image.pullPolicy": one_of("Always", "IfNotPresent", "Never"),
    "imagePullSecrets": OBJECTS,
    "rulesFrom": text("^$|^(xds|plane)://[^/]+:[0-9]+$", "empty, `xds://host:port`, or `plane://host:port,host:port`"),
    "planeToken.existingSecret.name": text(OPTIONAL_NAME),
    "planeToken.existingSecret.key": text(KEY),
    "plane.upstream": text("^$|^[^/]+:[0-9]+$", "empty, or `host:port`"),
    "plane.replicas": whole(1, 100),
    "plane.postgresql.existingSecret.name": text(OPTIONAL_NAME),
    "plane.postgresql.existingSecret.key": text(KEY),
    "plane.postgresql.tlsSecret": text(OPTIONAL_NAME),
    "plane.postgresql.port": PORT,
    "plane.tokens.existingSecret.name": text(OPTIONAL_NAME),
    "plane.tokens.existingSecret.key": text(KEY),
    "plane.tokens.rightsKey": text(f"^$|{KEY}"),
    "plane.tls.existingSecret": text(OPTIONAL_NAME),
    "plane.storage.size": text("^[0-9]+(Mi|Gi|Ti)$"),
    "plane.resources": FREE,
    "region": text(NAME, "letters, digits, `-`, `_` and `.`, a letter or digit first, at most 63"),
    "rules": files_by_name(RULES_FILE),
    "rulesOverlay": files_by_name(OVERLAY_FILE),
    "existingConfigMaps": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name"],
            "additionalProperties": False,
            "properties": {"name": text(OBJECT_NAME), "directory": text("^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")},
        },
    },
    "rulesSync.mountPath": text("^/"),
    "rulesSync.container": FREE,
    "rulesSync.initContainer": FREE,
    "rulesSync.securityContext": FREE,
    "rulesSync.egressPorts": {"type": "array", "items": whole(1, 65535)},
    "origin.url": {
        "type": "string",
        "allOf": [
            refused({"not": {"pattern": ORIGIN}}, "memory://, redis://HOST:PORT, … or another of docs/redis.md"),
            refused(
                {"pattern": "://[^/?]*:[^/?]*@|sentinel_password="},
                "a URL without a password; that belongs into a Secret (origin.passwordSecret, origin.existingSecret)",
            ),
        ],
    },
    "origin.existingSecret.name": text(OPTIONAL_NAME),
    "origin.existingSecret.key": text(KEY),
    "origin.passwordSecret.name": text(OPTIONAL_NAME),
    "origin.passwordSecret.key": text(KEY),
    "origin.tlsSecret": text(OPTIONAL_NAME),
    "origin.waitSeconds": {"type": "number", "minimum": 0, "maximum": 3600},
    "origin.deadlineMs": whole(1, 1000),
    "origin.prefix": text("^[A-Za-z0-9._:-]{0,128}$"),
    "devRedis.image": text("^\\S+$"),
    "devRedis.resources": FREE,
    "workers": whole(1, 1024),
    "drainSeconds": whole(5, 3600),
    "maxConnectionAgeSeconds": whole(1, 2_592_000),
    "trustedNetworks": NETWORKS,
    "ports.grpc": PORT,
    "ports.http": PORT,
    "ports.admin": PORT,
    "ports.exchange": PORT,
    "ports.keys": PORT,
    "keys.tokens.existingSecret.name": text(OPTIONAL_NAME),
    "keys.tokens.existingSecret.key": text(KEY),
    "keys.tls.existingSecret": text(OPTIONAL_NAME),
    "keys.tls.clientNames": TEXTS,
    "tls.existingSecret": text(OPTIONAL_NAME),
    "tls.clientNames": TEXTS,
    "tokens.existingSecret.name": text(OPTIONAL_NAME),
    "tokens.existingSecret.key": text(KEY),
    "exchange.peers": {
        "type": "object",
        "propertyNames": {"pattern": NAME},
        "additionalProperties": text("^([A-Za-z0-9._-]+|\\[[0-9a-fA-F:.]+\\]):[0-9]{1,5}$", "HOST:PORT or [IPV6]:PORT"),
    },
    "exchange.mode": one_of("inside", "separate"),
    "exchange.replicas": whole(1, 100),
    "exchange.resources": FREE,
    "exchange.tls.existingSecret": text(OPTIONAL_NAME),
    "exchange.tokens.existingSecret.name": text(OPTIONAL_NAME),
    "exchange.tokens.existingSecret.key": text(KEY),
    "exchange.service.type": one_of("LoadBalancer", "NodePort", "ClusterIP"),
    "exchange.service.annotations": STRINGS,
    "exchange.service.loadBalancerClass": LOAD_BALANCER_CLASS,
    "exchange.service.loadBalancerSourceRanges": NETWORKS,
    "exchange.service.externalTrafficPolicy": one_of("", "Cluster", "Local"),
    "service.type": one_of("ClusterIP", "NodePort", "LoadBalancer"),
    "service.annotations": STRINGS,
    "service.loadBalancerClass": LOAD_BALANCER_CLASS,
    "service.loadBalancerSourceRanges": NETWORKS,
    "service.externalTrafficPolicy": one_of("", "Cluster", "Local"),
    "service.trafficDistribution": one_of("", "PreferClose", "PreferSameZone", "PreferSameNode"),
    "service.internalTrafficPolicy": one_of("", "Cluster", "Local"),
    "autoscaling.minReplicas": whole(1, 1000),
    "autoscaling.maxReplicas": whole(1, 1000),
    "autoscaling.targetCPUUtilizationPercentage": whole(1, 100),
    "autoscaling.metrics": OBJECTS,
    "autoscaling.behavior": FREE,
    "podDisruptionBudget.maxUnavailable": {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]{1,3}%$"},
    "podDisruptionBudget.minAvailable": {"type": ["integer", "string"], "minimum": 0, "pattern": "^$|^[0-9]{1,3}%$"},
    "resources": {
        "type": "object",
        "additionalProperties": False,
        "required": ["requests"],
        "properties": {"requests": FREE, "limits": FREE, "claims": {"type": "array"}},
    },
    "startupSeconds": whole(2, 3600),
    "data.claim.size": text("^[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)$", "a size such as 2Gi"),
    "data.claim.storageClassName": text(OPTIONAL_NAME),
    "data.claim.accessModes": {
        "type": "array",
        "minItems": 1,
        "items": one_of("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"),
    },
    "data.claim.annotations": STRINGS,
    "data.claim.whenDeleted": one_of("Retain", "Delete"),
    "data.claim.whenScaled": one_of("Retain", "Delete"),
    "data.volume": {"type": "object", "minProperties": 1, "maxProperties": 1},
    "serviceAccount.name": text(OPTIONAL_NAME),
    "serviceAccount.annotations": STRINGS,
    "podSecurityContext": FREE,
    "securityContext": FREE,
    "podAnnotations": STRINGS,
    "podLabels": STRINGS,
    "nodeSelector": STRINGS,
    "tolerations": OBJECTS,
    "affinity": FREE,
    "topologySpread.topologyKeys": TEXTS,
    "topologySpread.maxSkew": whole(1, 100),
    "topologySpread.whenUnsatisfiable": one_of("ScheduleAnyway", "DoNotSchedule"),
    "dnsPolicy": one_of("", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "dnsConfig": FREE,
    "revisionHistoryLimit": whole(0, 1000),
    "extraEnv": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name"],
            "allOf": [
                refused(SECRET_IN_PLAIN, "a variable whose value is in a Secret (valueFrom.secretKeyRef)"),
                refused(SETTING, "a variable that is no setting of Headgate: those are values, or in config"),
            ],
        },
    },
    "extraVolumes": OBJECTS,
    "extraVolumeMounts": OBJECTS,
    "extraContainers": OBJECTS,
    "extraInitContainers": OBJECTS,
    "networkPolicy.callers": OBJECTS,
    "networkPolicy.operators": OBJECTS,
    "networkPolicy.redis": OBJECTS,
    "networkPolicy.redisPorts": {"type": "array", "items": whole(1, 65535)},
    "networkPolicy.extraEgress": OBJECTS,
    "serviceMonitor.labels": STRINGS,
    "serviceMonitor.interval": text("^[0-9]+(ms|s|m|h)$"),
    "serviceMonitor.scrapeTimeout": text("^$|^[0-9]+(ms|s|m|h)$"),
    "serviceMonitor.namespace": text(OPTIONAL_NAME),
    "serviceMonitor.relabelings": OBJECTS,
    "serviceMonitor.metricRelabelings": OBJECTS,
    "prometheusRule.labels": STRINGS,
    "grafanaDashboard.labels": STRINGS,
    "istio.workloadLabels": STRINGS,
    "istio.rateLimits": OBJECTS,
    "istio.transportSocket": FREE,
    "envoyGateway.transportSocket": FREE,
    "envoyGateway.rateLimits": OBJECTS,
    "sidecar.socketDirectory": text("^/"),
    "sidecar.resources": FREE,
    "test.domain": text("^.+$"),
    "test.descriptor": text("="),
    "test.tlsSecret": text(OPTIONAL_NAME),
}
"""What a value may be, by its path, where its default alone does not say it."""


def setting_schema(kind: SettingKind) -> Schema:
    match kind:
        case Boolean():
            return {"type": "boolean"}
        case Choice(values):
            return {"type": "string", "enum": list(values)}
        case Whole(low, high):
            return {"type": "integer", "minimum": low, "maximum": high}
        case Number(low, high):
            return {"type": "number", "minimum": low, "maximum": high}
        case ListOf(item):
            return {"type": "array", "items": setting_schema(item)}
        case Text(_, pattern) if not re.search(r"\(\?s|\d{4}\}", pattern):  # Helm's expressions know neither
            return {"type": "string", "pattern": f"^({pattern})$"}
    return {"type": "string"}


def config_schema() -> Schema:
    named = {
        setting.name: {"description": setting.help, **setting_schema(setting.kind)}
        for setting in SETTINGS
        if setting.name not in SET_BY_THE_CHART
    }
    named["otlp_endpoint"] |= refused(
        {"pattern": "://[^/]*@"},
        "a URL without a password; that belongs into a Secret (extraEnv, valueFrom.secretKeyRef)",
    )
    return {"type": "object", "additionalProperties": False, "properties": named}


def schema_of(path: str, value: Any) -> Schema:
    if path == "config":
        return config_schema()
    if path in RULES:
        return dict(RULES[path])
    match value:
        case dict():
            inner = {key: schema_of(f"{path}.{key}" if path else key, item) for key, item in value.items()}
            return {"type": "object", "additionalProperties": False, "properties": inner}
        case bool():
            return {"type": "boolean"}
        case str():
            return {"type": "string"}
    raise SystemExit(f"charts/generate.py: RULES needs a line for {path}")


def definitions(name: str, schema: Schema) -> Schema:
    """The grammar of a file that is a value: a mistake in it is refused before anything is installed, too."""
    grammar = json.loads(json.dumps(schema).replace("#/$defs/", "#/definitions/"))
    parts: Schema = grammar.pop("$defs")
    return {name: {key: value for key, value in grammar.items() if not key.startswith("$")}, **parts}


def values_schema(values: Mapping[str, Any]) -> str:
    root = schema_of("", dict(values))
    root["properties"]["global"] = FREE  # Helm's own, for charts that have this one inside
    root["definitions"] = definitions(RULES_FILE, rules_schema()) | definitions(OVERLAY_FILE, overlay_schema())
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **root}, indent=2) + "\n"


def documented(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Path and comment of every value that has one, in the file's order."""
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in lines:
        if match := re.match(r"\s*# -- (.*)", line):
            comment = [match[1]]
        elif comment and (match := re.match(r"\s*# (.*)", line)):
            comment.append(match[1])
        elif match := re.match(r"( *)([A-Za-z]+):", line):
            indent = len(match[1])
            path = [*(part for part in path if part[0] < indent), (indent, match[2])]
            if comment:
                yield ".".join(name for _, name in path), " ".join(comment)
            comment = []
        else:
            comment = []


def value_at(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values[part]
    return values


README = """\
# The chart of Headgate

<!-- Written by charts/generate.py (`make docs`) from the comments in values.yaml -->

```sh
helm install headgate charts/headgate --namespace headgate --create-namespace                  # one pod, by itself
helm install headgate charts/headgate -n headgate -f charts/headgate/examples/single-region.yaml
```

What it installs, how to size it, upgrades, security: [docs/deploy.md](../../docs/deploy.md). Examples that are tested:
[single-region.yaml](examples/single-region.yaml), [three-regions.yaml](examples/three-regions.yaml),
[region-per-zone.yaml](examples/region-per-zone.yaml), [one-zone.yaml](examples/one-zone.yaml),
[sidecar.yaml](examples/sidecar.yaml). A value that is not in this table, or not as it says, is refused with its name.
Kubernetes 1.25 and later. Without Helm: `make manifests` writes plain ones for Kustomize into `build/manifests`.

| value | default | meaning |
|---|---|---|
"""

LONGEST_DEFAULT = 70


def readme(lines: list[str], values: Any) -> str:
    rows = []
    for path, comment in documented(lines):
        default = json.dumps(value_at(values, path))
        shown = f"`{default}`" if len(default) <= LONGEST_DEFAULT else "see values.yaml"
        rows.append(f"| `{path}` | {shown} | {comment.replace('|', chr(92) + '|')} |\n")
    return README + "".join(rows)


def outputs() -> dict[Path, str]:
    """Every file that is written, and what belongs into it."""
    source = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(source)
    return {
        CHART / "README.md": readme(source.splitlines(), values),
        CHART / "values.schema.json": values_schema(values),
        **{CHART / "files" / name: source.read_text() for name, source in COPIED.items()},
    }


def main() -> int:
    for path, content in outputs().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
