"""ratelimit's variables that have no equivalent here, each with what to know instead.

Leaving them out changes nothing that is decided, so they are warnings, but for those of `DECIDES_OTHERWISE`. `harmless`
are values that ask for what Headgate does anyway: those are not worth a line.
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

_NO_STATSD = Unsupported("statsd is not supported; metrics are at GET /metrics on the HTTP port", FALSE)
_MAPPER = Unsupported(
    "metrics have the names and labels of Envoy Gateway's mapping, always", ("/etc/statsd-exporter/conf.yaml",)
)
_CONNECTION_AGE = Unsupported("see HEADGATE_MAX_CONNECTION_AGE_S, an hour unless set")
_POOL = Unsupported("there is no pool: one connection for each shard carries all calls, many at a time")
_PER_SECOND = Unsupported("there is one origin for all limits: REDIS_URL", FALSE)
_TRACING = Unsupported("spans name the service headgate; OTEL_RESOURCE_ATTRIBUTES adds to that")
_XDS = Unsupported("a stream that ended is begun again, with a growing wait (HEADGATE_XDS_RETRY_S)")
_REQUEST_HEADERS = Unsupported(
    "headers go to the caller (LIMIT_RESPONSE_HEADERS_ENABLED) and not to what is behind Envoy", FALSE
)
_MEMCACHE = Unsupported("memcached is not supported")

VARIABLES: Mapping[str, Unsupported] = {
    "USE_STATSD": _NO_STATSD,
    "STATSD_HOST": _NO_STATSD,
    "STATSD_PORT": _NO_STATSD,
    "STATSD_PROTOCOL": _NO_STATSD,
    "USE_DOG_STATSD": _NO_STATSD,
    "USE_DOG_STATSD_MOGRIFIERS": _NO_STATSD,
    "STATS_FLUSH_INTERVAL": _NO_STATSD,
    "EXTRA_TAGS": Unsupported("metrics carry no extra tags; add labels where they are scraped"),
    "DISABLE_STATS": Unsupported("metrics can't be switched off; they cost nothing until they are read", FALSE),
    "PROMETHEUS_PATH": Unsupported("metrics are always at GET /metrics", ("/metrics",)),
    "PROMETHEUS_MAPPER_YAML": _MAPPER,
    "GRPC_MAX_CONNECTION_AGE": _CONNECTION_AGE,
    "GRPC_MAX_CONNECTION_AGE_GRACE": _CONNECTION_AGE,
    "MAX_CONCURRENT_REQUESTS": Unsupported("see HEADGATE_MAX_PENDING_CALLS", ("0",)),
    "TRACING_EXPORTER_PROTOCOL": Unsupported("spans are sent over OTLP/HTTP", ("http",)),
    "TRACING_SERVICE_NAME": _TRACING,
    "TRACING_SERVICE_NAMESPACE": _TRACING,
    "TRACING_SERVICE_INSTANCE_ID": _TRACING,
    "REQUEST_TIMEOUT": Unsupported("a call ends with its caller's deadline; see HEADGATE_ORIGIN_DEADLINE_MS", ("0",)),
    "RUNTIME_WATCH_ROOT": Unsupported("links and files are both watched", (*TRUE, *FALSE)),
    "RUNTIME_IGNOREDOTFILES": Unsupported("files whose names begin with a dot are never read", TRUE),
    "EXPIRATION_JITTER_MAX_SECONDS": Unsupported("keys in Redis expire when they can no longer matter"),
    "LOCAL_CACHE_SIZE_IN_BYTES": Unsupported(
        "denials are always answered from memory; HEADGATE_MAX_CELLS bounds it", ("0",)
    ),
    "REDIS_SOCKET_TYPE": Unsupported("Redis is reached over TCP", ("tcp",)),
    "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": Unsupported(
        "a region that can't be reached is each rule's own failure policy, not a process without health", FALSE
    ),
    "REDIS_TIMEOUT": Unsupported("a request waits for the origin as long as HEADGATE_ORIGIN_DEADLINE_MS says"),
    "REDIS_USE_EXPLICIT_PIPELINE": _POOL,
    "XDS_CLIENT_BACKOFF_RANDOM_FACTOR": _XDS,
    "XDS_CLIENT_BACKOFF_JITTER": _XDS,
}

DECIDES_OTHERWISE: Mapping[str, str] = {
    "QUOTA_MODE": "it makes quotas of all rules, also of those that were to deny by themselves; say `quota_mode: true` "
    "in the descriptors that are quotas",
    "USE_CALENDAR_MONTH_RATE_LIMIT": "a month is 30 days here, whatever the calendar says; leave it out to accept that",
}
"""Switches that would change what is decided if they were left out, each with what to do instead: nothing starts."""

PREFIXES: Mapping[str, Unsupported] = {
    "REDIS_PERSECOND": _PER_SECOND,
    "REDIS_POOL_": _POOL,
    "REDIS_PIPELINE_": _POOL,
    "MEMCACHE_": _MEMCACHE,
    "LIMIT_REQUEST_": _REQUEST_HEADERS,
}
