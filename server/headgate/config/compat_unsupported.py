"""ratelimit's variables that have no equivalent here, each with what to know instead.

Leaving them out changes nothing that is decided, so they are warnings. `harmless` are
values that ask for what Headgate does anyway: those are not worth a line.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One variable of ratelimit that Headgate does not read, with the warning to print when it is set."""

    reason: str
    harmless: tuple[str, ...] = ()


FALSE = ("0", "f", "F", "false", "FALSE", "False")
TRUE = ("1", "t", "T", "true", "TRUE", "True")

_NO_DEBUG_PORT = Unsupported("there is no debug port; the rules in force are at GET /rules on the HTTP port")
_NO_STATSD = Unsupported("statsd is not supported; metrics are at GET /metrics on the HTTP port", FALSE)
_PROMETHEUS = Unsupported("metrics are always at GET /metrics on the HTTP port", (*TRUE, "/metrics"))
_CONNECTION_AGE = Unsupported("see HEADGATE_MAX_CONNECTION_AGE_S, an hour unless set")
_POOL = Unsupported("there is no pool: one connection for each shard carries all calls, many at a time")
_PER_SECOND = Unsupported("there is one origin for all limits: REDIS_URL", FALSE)
_TRACING = Unsupported("HEADGATE_TRACES and HEADGATE_OTLP_ENDPOINT send spans to a collector", FALSE)
_XDS = Unsupported("rules come from a directory, not from a management server")
_MEMCACHE = Unsupported("memcached is not supported")

VARIABLES: Mapping[str, Unsupported] = {
    "DEBUG_HOST": _NO_DEBUG_PORT,
    "DEBUG_PORT": _NO_DEBUG_PORT,
    "USE_STATSD": _NO_STATSD,
    "STATSD_HOST": _NO_STATSD,
    "STATSD_PORT": _NO_STATSD,
    "STATSD_PROTOCOL": _NO_STATSD,
    "USE_DOG_STATSD": _NO_STATSD,
    "USE_DOG_STATSD_MOGRIFIERS": _NO_STATSD,
    "STATS_FLUSH_INTERVAL": _NO_STATSD,
    "EXTRA_TAGS": Unsupported("metrics carry no extra tags; add labels where they are scraped"),
    "DISABLE_STATS": Unsupported("metrics can't be switched off; they cost nothing until they are read", FALSE),
    "PROMETHEUS_ADDR": _PROMETHEUS,
    "PROMETHEUS_PATH": _PROMETHEUS,
    "PROMETHEUS_MAPPER_YAML": _PROMETHEUS,
    "GRPC_MAX_CONNECTION_AGE": _CONNECTION_AGE,
    "GRPC_MAX_CONNECTION_AGE_GRACE": _CONNECTION_AGE,
    "MAX_CONCURRENT_REQUESTS": Unsupported("see HEADGATE_MAX_PENDING_CALLS", ("0",)),
    "REQUEST_TIMEOUT": Unsupported("a call ends with its caller's deadline; see HEADGATE_ORIGIN_DEADLINE_MS", ("0",)),
    "FORCE_START_WITHOUT_INITIAL_CONFIG": Unsupported(
        "without good rules nothing starts, unless HEADGATE_DATA_DIR has a snapshot of good ones", FALSE
    ),
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": Unsupported("health is serving only while rules are loaded", TRUE),
    "RUNTIME_WATCH_ROOT": Unsupported("links and files are both watched", (*TRUE, *FALSE)),
    "RUNTIME_IGNOREDOTFILES": Unsupported("files whose names begin with a dot are never read", TRUE),
    "RESPONSE_DYNAMIC_METADATA": Unsupported(
        "the metadata of the matched rules is returned, and not the request's descriptors", FALSE
    ),
    "EXPIRATION_JITTER_MAX_SECONDS": Unsupported("keys in Redis expire when they can no longer matter"),
    "LOCAL_CACHE_SIZE_IN_BYTES": Unsupported(
        "denials are always answered from memory; HEADGATE_MAX_CELLS bounds it", ("0",)
    ),
    "CACHE_KEY_PREFIX": Unsupported("HEADGATE_REDIS_PREFIX keeps installations apart on one Redis"),
    "REDIS_SOCKET_TYPE": Unsupported("Redis is reached over TCP", ("tcp",)),
    "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": Unsupported(
        "a region that can't be reached is each rule's own failure policy, not a process without health", FALSE
    ),
    "REDIS_TIMEOUT": Unsupported("a request waits for the origin as long as HEADGATE_ORIGIN_DEADLINE_MS says"),
    "REDIS_USE_EXPLICIT_PIPELINE": _POOL,
    "CONFIG_TYPE": Unsupported("rules are read from a directory", ("FILE", "GRPC_XDS_SOTW")),
}

PREFIXES: Mapping[str, Unsupported] = {
    "REDIS_PERSECOND": _PER_SECOND,
    "REDIS_POOL_": _POOL,
    "REDIS_PIPELINE_": _POOL,
    "MEMCACHE_": _MEMCACHE,
    "CONFIG_GRPC_XDS_": _XDS,
    "XDS_CLIENT_": _XDS,
    "TRACING_": _TRACING,
}
