"""Schemas of what others define (Prometheus' operator, KEDA, Istio, Envoy Gateway), as far as the chart uses them.

Kubernetes's own schemas know nothing of these. Written from their API references, and closed: a field that is not here
is one that nobody looked up.
"""

from typing import Any

from jsonschema import Draft202012Validator

Schema = dict[str, Any]


def closed(required: str = "", **properties: Any) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": {name.rstrip("_"): value for name, value in properties.items()},
    }


TEXT: Schema = {"type": "string", "minLength": 1}
STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
OPEN: Schema = {"type": "object"}


def listed(item: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": item}


DURATION: Schema = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}
METADATA = closed("name", name=TEXT, namespace=TEXT, labels=STRINGS, annotations=STRINGS)
SELECTOR = closed("matchLabels", matchLabels=STRINGS)
RELABELING = closed(
    action=TEXT,
    sourceLabels=listed(TEXT),
    targetLabel=TEXT,
    regex=TEXT,
    replacement={"type": "string"},
    separator=TEXT,
    modulus={"type": "integer"},
)
ENDPOINT = closed(
    "port",
    port=TEXT,
    path=TEXT,
    interval=DURATION,
    scrapeTimeout=DURATION,
    relabelings=listed(RELABELING),
    metricRelabelings=listed(RELABELING),
)
NAMESPACES = closed("matchNames", matchNames=listed(TEXT))
ALERT = closed(
    "alert expr annotations labels", alert=TEXT, expr=TEXT, for_=DURATION, labels=STRINGS, annotations=STRINGS
)
RECORD = closed("record expr", record=TEXT, expr=TEXT, labels=STRINGS)
PATCH = closed(
    "applyTo match patch",
    applyTo={"enum": ["HTTP_FILTER", "CLUSTER", "VIRTUAL_HOST"]},
    match=closed("context", context={"const": "GATEWAY"}, listener=OPEN, routeConfiguration=OPEN),
    patch=closed("operation value", operation={"enum": ["INSERT_BEFORE", "ADD", "MERGE"]}, value=OPEN),
)
JSON_PATCH = closed(
    "type name operation",
    type={"type": "string", "pattern": "^type.googleapis.com/envoy.config"},
    name=TEXT,
    operation=closed("op path value", op={"const": "add"}, path={"type": "string"}, value={}),
)

SPECS: dict[tuple[str, str], Schema] = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): closed(
        "selector endpoints", selector=SELECTOR, endpoints=listed(ENDPOINT), namespaceSelector=NAMESPACES
    ),
    ("monitoring.coreos.com/v1", "PodMonitor"): closed(
        "selector podMetricsEndpoints",
        selector=SELECTOR,
        podMetricsEndpoints=listed(ENDPOINT),
        namespaceSelector=NAMESPACES,
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): closed(
        "groups",
        groups=listed(closed("name rules", name=TEXT, interval=DURATION, rules=listed({"anyOf": [ALERT, RECORD]}))),
    ),
    ("networking.istio.io/v1alpha3", "EnvoyFilter"): closed(
        "workloadSelector configPatches",
        workloadSelector=closed("labels", labels=STRINGS),
        configPatches=listed(PATCH),
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): closed(
        "scaleTargetRef triggers",
        scaleTargetRef=closed("name", name=TEXT, kind=TEXT, apiVersion=TEXT),
        minReplicaCount={"type": "integer"},
        maxReplicaCount={"type": "integer"},
        triggers=listed(
            closed(
                "type metadata",
                type={"const": "prometheus"},
                metricType={"enum": ["AverageValue", "Value"]},
                metadata=closed("serverAddress query threshold", serverAddress=TEXT, query=TEXT, threshold=TEXT),
            )
        ),
    ),
    ("gateway.envoyproxy.io/v1alpha1", "EnvoyPatchPolicy"): closed(
        "targetRef type jsonPatches",
        targetRef=closed("group kind name", group=TEXT, kind={"const": "Gateway"}, name=TEXT),
        type={"const": "JSONPatch"},
        jsonPatches=listed(JSON_PATCH),
    ),
}


def is_custom(manifest: dict[str, Any]) -> bool:
    return (manifest["apiVersion"], manifest["kind"]) in SPECS


def custom_problems(manifest: dict[str, Any]) -> list[str]:
    spec = SPECS[manifest["apiVersion"], manifest["kind"]]
    schema = closed("apiVersion kind metadata spec", apiVersion=TEXT, kind=TEXT, metadata=METADATA, spec=spec)
    return [
        f"{manifest['kind']}: {error.json_path}: {error.message}"
        for error in Draft202012Validator(schema).iter_errors(manifest)
    ]
