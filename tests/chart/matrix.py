"""The chart's switches, and combinations of them in which every two settings meet at least once.

The combinations are the same on every run. Those that the chart refuses by itself (one process that several share) are
left out, as pairs and as combinations.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.helm import merged

Values = Mapping[str, Any]
Combination = dict[str, str]

REDIS = "redis://headgate@redis-0:6379,redis-1:6380"
PEERS = {"us": "exchange.us.example.com:8082", "ap": "[2001:db8::1]:9082"}
RULES = {
    "edge.yaml": {
        "domain": "edge",
        "descriptors": [{"key": "user", "rate_limit": {"unit": "minute", "requests_per_unit": 9}}],
    }
}
SYNC: dict[str, Any] = {
    "name": "git-sync",
    "image": "registry.k8s.io/git-sync/git-sync:v4.4.0",
    "args": ["--root=/synced"],
}
SYNC["resources"] = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}

BOUND = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
PROMETHEUS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
DECISIONS_PER_SECOND: dict[str, Any] = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "headgate_decisions_per_second"},
        "target": {"type": "AverageValue", "averageValue": "8k"},
    },
}
TLS_OF_ENVOY: dict[str, Any] = {
    "name": "envoy.transport_sockets.tls",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "sni": "headgate.limits",
    },
}

SWITCHES: Mapping[str, Mapping[str, Values]] = {
    "kind": {name: {"kind": name} for name in ("Deployment", "StatefulSet", "DaemonSet", "Sidecar")},
    "replicas": {"one": {"replicas": 1}, "three": {"replicas": 3}, "none": {"replicas": 0}},
    "origin": {
        "memory": {"origin": {"url": "memory://", "countAlone": True}},
        "password": {"origin": {"url": REDIS, "passwordSecret": {"name": "redis"}, "prefix": "staging:eu"}},
        "secret": {
            "origin": {"existingSecret": {"name": "origin", "key": "redis-url"}, "waitSeconds": 0},
            "networkPolicy": {"redisPorts": [6379, 7000]},
        },
        "sentinel": {
            "origin": {"url": "redis+sentinel://sentinel-0,[2001:db8::2]:26380/limits?sentinel_user=me"},
            "networkPolicy": {"redisPorts": [6379]},
        },
        "tls": {
            "origin": {"url": "rediss://redis:6379/0?verify=chain", "passwordSecret": {"name": "r"}, "tlsSecret": "ca"}
        },
        "dev": {"devRedis": {"enabled": True}},
    },
    "callers": {
        "anybody": {},
        "tls": {"tls": {"existingSecret": "tls"}},
        "mutual": {
            "tls": {"existingSecret": "tls", "clientCertificates": True, "clientNames": ["a.example", "*.b.example"]}
        },
        "tokens": {"tokens": {"existingSecret": {"name": "tokens"}}},
        "both": {"tls": {"existingSecret": "tls"}, "tokens": {"existingSecret": {"name": "tokens", "key": "bearer"}}},
    },
    "keys": {
        "none": {},
        "tokens": {"keys": {"enabled": True, "tokens": {"existingSecret": {"name": "operators"}}}},
        "mutual": {
            "keys": {
                "enabled": True,
                "tls": {"existingSecret": "keys-tls", "clientCertificates": True, "clientNames": ["ops.example"]},
            }
        },
    },
    "plane": {
        "none": {},
        "root": {
            "plane": {
                "enabled": True,
                "tokens": {"existingSecret": {"name": "plane"}, "rightsKey": "rights"},
                "tls": {"existingSecret": "plane-tls"},
                "storage": {"className": "fast"},
            }
        },
        "roots": {
            "plane": {
                "enabled": True,
                "replicas": 3,
                "tokens": {"existingSecret": {"name": "plane"}},
                "postgresql": {"existingSecret": {"name": "plane-db"}, "tlsSecret": "plane-db-tls", "port": 6432},
            }
        },
        "relay": {
            "rulesFrom": "plane://headgate-plane:8083,root.example.com:8083",
            "planeToken": {"existingSecret": {"name": "plane-token"}},
            "plane": {
                "enabled": True,
                "upstream": "root.example.com:8083",
                "tokens": {"existingSecret": {"name": "plane"}},
            },
        },
    },
    "exchange": {
        "none": {},
        "inside": {"exchange": {"peers": PEERS, "tls": {"existingSecret": "exchange"}}},
        "separate": {"exchange": {"peers": PEERS, "mode": "separate", "tls": {"existingSecret": "exchange"}}},
        "tokens": {
            "exchange": {
                "peers": PEERS,
                "tokens": {"existingSecret": {"name": "regions"}},
                "service": {"type": "NodePort", "annotations": {"a": "b"}},
            }
        },
        "insecure": {
            "exchange": {"peers": PEERS, "insecure": True, "service": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}
        },
    },
    "autoscaling": {
        "off": {},
        "on": {"autoscaling": {"enabled": True}},
        "behavior": {
            "autoscaling": {
                "enabled": True,
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
                "metrics": [DECISIONS_PER_SECOND],
            }
        },
        "external": {"autoscaling": {"external": True}},
    },
    "disruption": {
        "on": {},
        "off": {"podDisruptionBudget": {"enabled": False}},
        "share": {"podDisruptionBudget": {"maxUnavailable": "25%"}},
        "least": {"podDisruptionBudget": {"minAvailable": "50%"}},
    },
    "network": {
        "open": {},
        "off": {"networkPolicy": {"enabled": False}},
        "closed": {
            "networkPolicy": {
                "callers": [{"namespaceSelector": {"matchLabels": {"team": "edge"}}}],
                "redis": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
                "extraEgress": [{"ports": [{"protocol": "TCP", "port": 4317}]}],
            }
        },
    },
    "monitoring": {
        "off": {},
        "on": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True},
            "grafanaDashboard": {"enabled": True},
            "networkPolicy": {"operators": PROMETHEUS},
        },
        "elsewhere": {
            "serviceMonitor": {
                "enabled": True,
                "namespace": "monitoring",
                "scrapeTimeout": "5s",
                "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}],
                "metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "python_.*"}],
            },
            "networkPolicy": {"operators": PROMETHEUS},
        },
    },
    "rules": {
        "mapping": {"rules": RULES},
        "text": {
            "rules": {
                "edge.yaml": "domain: edge\ndescriptors:\n- key: user\n",
                "more.yml": "domain: more\ndescriptors: []\n",
            }
        },
        "others": {
            "existingConfigMaps": [{"name": "rules-a"}, {"name": "rules-b", "directory": "b"}],
        },
    },
    "overlay": {
        "off": {},
        "on": {"rulesOverlay": {"a.yaml": {"overlay": [{"on_error": "closed"}]}, "b.yaml": "overlay: []"}},
    },
    "sync": {
        "off": {},
        "on": {"rulesSync": {"enabled": True, "container": SYNC, "initContainer": {**SYNC, "name": "first"}}},
    },
    "check": {"on": {}, "off": {"rulesCheck": {"enabled": False}}},
    "config": {
        "none": {},
        "some": {
            "config": {
                "response_headers": True,
                "max_pending_bytes": 67108864,
                "log_format": "json",
                "merge_domains": True,
            }
        },
        "pushed": {"config": {"otlp_endpoint": "https://collector:4318", "traces": True, "decision_log_otlp": True}},
    },
    "data": {
        "on": {},
        "off": {"data": {"enabled": False}},
        "claim": {"data": {"volume": {"emptyDir": None, "persistentVolumeClaim": {"claimName": "data"}}}},
    },
    "workers": {"one": {}, "four": {"workers": 4}},
    "families": {"one": {}, "both": {"dualStack": True}},
    "service": {
        "plain": {},
        "balanced": {"service": {"type": "LoadBalancer", "annotations": {"a": "b"}, "headless": False}},
        "guarded": {
            "service": {
                "type": "LoadBalancer",
                "loadBalancerClass": "service.k8s.aws/nlb",
                "loadBalancerSourceRanges": ["203.0.113.0/24", "2001:db8::/32"],
                "externalTrafficPolicy": "Local",
            }
        },
    },
    "account": {
        "made": {},
        "named": {"serviceAccount": {"name": "limits", "annotations": {"a": "b"}}},
        "given": {"serviceAccount": {"create": False}},
    },
    "names": {
        "plain": {},
        "given": {
            "fullnameOverride": "limits",
            "commonLabels": {"team": "edge"},
            "commonAnnotations": {"owner": "edge@example.com"},
            "workloadAnnotations": {"reloader.example/auto": "true"},
            "image": {"digest": f"sha256:{'0' * 64}"},
        },
        "long": {"nameOverride": "a-name-that-is-rather-long-for-an-object-of-kubernetes"},
    },
    "pods": {
        "plain": {},
        "placed": {
            "podAnnotations": {"a": "b"},
            "podLabels": {"c": "d"},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "topologySpread": {"topologyKeys": []},
            "priorityClassName": "high",
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["10.0.0.10"], "options": [{"name": "ndots", "value": "2"}]},
            "revisionHistoryLimit": 3,
            "imagePullSecrets": [{"name": "registry"}],
        },
        "extended": {
            "extraEnv": [{"name": "OTEL_RESOURCE_ATTRIBUTES", "value": "team=edge"}],
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
            "extraInitContainers": [{**SYNC, "name": "before", "securityContext": BOUND}],
            "trustedNetworks": ["10.0.0.0/8", "fd00::/8"],
        },
    },
    "envoy": {
        "none": {},
        "istio": {"istio": {"enabled": True}},
        "istio-tls": {"istio": {"enabled": True, "transportSocket": TLS_OF_ENVOY}},
        "gateway": {"envoyGateway": {"enabled": True, "transportSocket": TLS_OF_ENVOY}},
    },
}

IMPOSSIBLE = (
    {"origin": "memory", "workers": "four"},
    {"origin": "memory", "exchange": "separate"},
    {"kind": "StatefulSet", "data": "off"},
    *({"autoscaling": on, "kind": kind} for on in ("on", "behavior", "external") for kind in ("DaemonSet", "Sidecar")),
    {"kind": "Sidecar", "workers": "four"},
    *({"kind": "Sidecar", "exchange": inside} for inside in ("inside", "tokens", "insecure")),
    *({"kind": "Sidecar", "envoy": envoy} for envoy in ("istio", "istio-tls", "gateway")),
    *(
        {"callers": tokens, "envoy": envoy}
        for tokens in ("tokens", "both")
        for envoy in ("istio", "istio-tls", "gateway")
    ),
    *({"callers": tls, "envoy": "istio"} for tls in ("tls", "mutual")),
)
"""Refused by the chart, with a reason; test_chart_values.py has each."""
LEAST = 48
"""Combinations: more than pairs need, so that some threes meet too."""


def possible(combination: Mapping[str, str]) -> bool:
    return not any(pair.items() <= combination.items() for pair in IMPOSSIBLE)


def pairs() -> set[frozenset[tuple[str, str]]]:
    every = [(name, option) for name, options in SWITCHES.items() for option in options]
    return {
        frozenset(pair)
        for pair in itertools.combinations(every, 2)
        if pair[0][0] != pair[1][0] and possible(dict(pair))
    }


def combinations() -> list[Combination]:
    """Greedily: of some random candidates the one with most pairs that have not met."""
    chance, found, missing = random.Random(19), list[Combination](), pairs()
    while missing or len(found) < LEAST:
        best = max(_candidates(chance, missing), key=lambda candidate: len(met(candidate) & missing))
        found.append(best)
        missing -= met(best)
    return found


def _candidates(chance: random.Random, missing: set[frozenset[tuple[str, str]]]) -> Iterator[Combination]:
    """Each has one missing pair at least, while there are some."""
    wanted = sorted(sorted(pair) for pair in missing)
    fixed = dict(chance.choice(wanted)) if wanted else {}
    return (_completed(chance, fixed) for _ in range(30))


def _completed(chance: random.Random, fixed: Combination) -> Combination:
    """Switch by switch, with what is possible beside those that are set: each has an option that always is."""
    found = dict(fixed)
    for name, options in SWITCHES.items():
        if name not in fixed:
            found[name] = chance.choice([option for option in options if possible({**found, name: option})])
    return found


def met(combination: Combination) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(pair) for pair in itertools.combinations(combination.items(), 2)}


def values_of(combination: Combination) -> dict[str, Any]:
    return merged(*(SWITCHES[name][option] for name, option in combination.items()))
