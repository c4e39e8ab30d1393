"""HEADGATE_COMPAT=ratelimit: the environment of envoyproxy/ratelimit, read as Headgate's settings.

Pure: an environment in, settings as text out, each with the variable that it came from,
and what there is to say about the rest. Only variables that are set and not empty count;
whatever is given as `HEADGATE_…` or as a flag wins over what is found here. A variable
without an equivalent is a warning where leaving it out changes nothing that is decided,
and a problem where it would: then nothing starts. docs/migrate.md has the same tables.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headgate.config.compat_redis import RedisProblem, redis_origin
from headgate.config.compat_unsupported import DECIDES_OTHERWISE, FALSE, PREFIXES, TRUE, VARIABLES
from headgate.config.compat_xds import XDS, XdsProblem, xds_rules

COMPAT_ENV = "HEADGATE_COMPAT"
RATELIMIT = "ratelimit"

RUNTIME_ROOT = "/srv/runtime_data/current"
RUNTIME_APP_DIRECTORY = "config"
"""ratelimit's defaults for the parts of its rules directory."""

RATELIMIT_DEFAULTS: Mapping[str, str] = {"DEBUG_PORT": "6070"}
"""ratelimit's own default that counts only where Headgate stands in its place (`headgate-ratelimit`): beside it, the
port is taken."""

OTLP_ENDPOINT = "http://localhost:4318"
"""Collector that OpenTelemetry's exporters speak to where none is named."""

LOOPBACK = "127.0.0.1"

LOG_LEVELS: Mapping[str, str] = {
    "panic": "error",
    "fatal": "error",
    "error": "error",
    "warn": "warning",
    "warning": "warning",
    "info": "info",
    "debug": "debug",
    "trace": "debug",
}


@dataclass(frozen=True, slots=True)
class Given:
    """A setting's value as text, and the variable to name when it is not accepted."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Translation:
    """Result of reading one environment of ratelimit: settings, warnings for the operator, problems that stop the
    start.
    """

    settings: Mapping[str, Given] = field(default_factory=dict)
    """Values by the name of the setting."""
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class _Refused(Exception):
    """A variable's value is not one that ratelimit would have taken; the message says which are."""


def translate(environ: Mapping[str, str]) -> Translation:
    """Read ratelimit's variables, if `HEADGATE_COMPAT=ratelimit` asks for it; else an empty translation."""
    mode = environ.get(COMPAT_ENV, "")
    if not mode:
        return Translation()
    if mode != RATELIMIT:
        return Translation(problems=(f"{COMPAT_ENV}: expected `{RATELIMIT}`, got {mode!r}",))
    given = {name: value for name, value in environ.items() if value}
    settings: dict[str, Given] = {}
    problems = list(_contradictions(given))
    for part in _PARTS:
        try:
            settings.update(part(given))
        except (_Refused, RedisProblem, XdsProblem) as error:
            problems.append(str(error))
    return Translation(settings, tuple(_warnings(given)), tuple(problems))


# Each part reads the variables of one subject.


def _rules(given: Mapping[str, str]) -> dict[str, Given]:
    if given.get("CONFIG_TYPE", "FILE") != "FILE":
        found = xds_rules(given, lambda name: _is_true(given, name))
        return {setting: Given(where, text) for setting, (where, text) in found.items()}
    names = [name for name in ("RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY") if name in given]
    if not names:
        return {}
    path = posixpath.join(
        given.get("RUNTIME_ROOT", RUNTIME_ROOT),
        # As ratelimit joins them: a part that begins with a slash does not start over.
        given.get("RUNTIME_SUBDIRECTORY", "").lstrip("/"),
        given.get("RUNTIME_APPDIRECTORY", RUNTIME_APP_DIRECTORY).lstrip("/"),
    )
    return {"rules": Given("/".join(names), path)}


def _addresses(given: Mapping[str, str]) -> dict[str, Given]:
    found = {}
    if "GRPC_UDS" in given:
        found["grpc"] = Given("GRPC_UDS", f"unix:{given['GRPC_UDS']}")
    elif listens := _listens(given, "GRPC_HOST", "GRPC_PORT", "8081"):
        found["grpc"] = listens
    if listens := _listens(given, "HOST", "PORT", "8080"):
        found["http"] = listens
    if listens := _listens(given, "DEBUG_HOST", "DEBUG_PORT", "6070", LOOPBACK):
        found["debug"] = listens
    if "PROMETHEUS_ADDR" in given and _is_true(given, "USE_PROMETHEUS"):
        found["metrics"] = Given("PROMETHEUS_ADDR", given["PROMETHEUS_ADDR"])
    return found


def _listens(
    given: Mapping[str, str], host_name: str, port_name: str, default_port: str, default_host: str = "0.0.0.0"
) -> Given | None:
    names = [name for name in (host_name, port_name) if name in given]
    if not names:
        return None
    host = given.get(host_name, default_host)
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return Given("/".join(names), f"{shown}:{given.get(port_name, default_port)}")


def _logs(given: Mapping[str, str]) -> dict[str, Given]:
    found = {}
    if "LOG_LEVEL" in given:
        level = LOG_LEVELS.get(given["LOG_LEVEL"].lower())
        if level is None:
            raise _Refused(f"LOG_LEVEL: expected one of {', '.join(LOG_LEVELS)}, got {given['LOG_LEVEL']!r}")
        found["log_level"] = Given("LOG_LEVEL", level)
    if "LOG_FORMAT" in given:
        found["log_format"] = Given("LOG_FORMAT", "json" if given["LOG_FORMAT"].lower() == "json" else "console")
    return found


def _plain(given: Mapping[str, str]) -> dict[str, Given]:
    """One variable, one setting, the same value."""
    names = {
        "LIMIT_LIMIT_HEADER": "header_limit",
        "LIMIT_REMAINING_HEADER": "header_remaining",
        "LIMIT_RESET_HEADER": "header_reset",
        "NEAR_LIMIT_RATIO": "near_limit_ratio",
        "CACHE_KEY_PREFIX": "redis_prefix",
    }
    return {setting: Given(name, given[name]) for name, setting in names.items() if name in given}


def _switches(given: Mapping[str, str]) -> dict[str, Given]:
    names = {
        "LIMIT_RESPONSE_HEADERS_ENABLED": "response_headers",
        "SHADOW_MODE": "shadow_mode",
        "RESPONSE_DYNAMIC_METADATA": "request_metadata",
        "MERGE_DOMAIN_CONFIG": "merge_domains",
        "USE_PROMETHEUS": "ratelimit_metrics",
    }
    return {
        setting: Given(name, "true" if _is_true(given, name) else "false")
        for name, setting in names.items()
        if name in given
    }


def _tls(given: Mapping[str, str]) -> dict[str, Given]:
    if not _is_true(given, "GRPC_SERVER_USE_TLS"):
        return {}
    names = {
        "GRPC_SERVER_TLS_CERT": "tls_cert",
        "GRPC_SERVER_TLS_KEY": "tls_key",
        # Envoy Gateway gives this name, which ratelimit does not read; its own wins.
        "GRPC_SERVER_TLS_CA_CERT": "tls_client_ca",
        "GRPC_CLIENT_TLS_CACERT": "tls_client_ca",
        "GRPC_CLIENT_TLS_SAN": "tls_client_san",
    }
    missing = [name for name in ("GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY") if name not in given]
    if missing:
        raise _Refused(f"GRPC_SERVER_USE_TLS: needs {' and '.join(missing)} beside it")
    return {setting: Given(name, given[name]) for name, setting in names.items() if name in given}


def _traces(given: Mapping[str, str]) -> dict[str, Given]:
    """Trace the share that ratelimit would; it traces all decisions unless told otherwise."""
    if not _is_true(given, "TRACING_ENABLED"):
        return {}
    found = {"traces": Given("TRACING_ENABLED", "true"), "trace_share": Given("TRACING_ENABLED", "1")}
    if "TRACING_SAMPLING_RATE" in given:
        found["trace_share"] = Given("TRACING_SAMPLING_RATE", given["TRACING_SAMPLING_RATE"])
    collector = given.get("OTEL_EXPORTER_OTLP_ENDPOINT", OTLP_ENDPOINT)
    return {**found, "otlp_endpoint": Given("OTEL_EXPORTER_OTLP_ENDPOINT", collector)}


def _start(given: Mapping[str, str]) -> dict[str, Given]:
    """Be ready without rules where ratelimit would be: started by force, and healthy without any."""
    force, needs = "FORCE_START_WITHOUT_INITIAL_CONFIG", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"
    empty = _is_true(given, force) and not _is_true(given, needs)
    return {"start_without_rules": Given(force, "true")} if empty else {}


def _bounds(given: Mapping[str, str]) -> dict[str, Given]:
    # Envoy Gateway's rules make large requests; their bytes are what is bounded (`max_message_bytes`).
    found = {name: Given(COMPAT_ENV, "256") for name in ("max_descriptors", "max_entries")}
    streams = given.get("GRPC_MAX_CONCURRENT_STREAMS", "0")
    # 0 is no bound of its own there; here there always is one.
    if streams != "0":
        found["max_concurrent_streams"] = Given("GRPC_MAX_CONCURRENT_STREAMS", streams)
    return found


def _overdraft(given: Mapping[str, str]) -> dict[str, Given]:
    """Charge every cost, also one that does not fit, as ratelimit does unless this variable says otherwise."""
    stops = _is_true(given, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT")
    where = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" if stops else COMPAT_ENV
    return {"overdraft": Given(where, "false" if stops else "true")}


def _refund(given: Mapping[str, str]) -> dict[str, Given]:
    """Allow refunds on every limit, as ratelimit does."""
    return {"refund": Given(COMPAT_ENV, "true")}


def _request_limits(given: Mapping[str, str]) -> dict[str, Given]:
    """Take limits that come with requests instead of the rules', as ratelimit does."""
    return {"request_limits": Given(COMPAT_ENV, "allow")}


def _origin(given: Mapping[str, str]) -> dict[str, Given]:
    if "REDIS_URL" not in given:
        return {}
    return {"origin": Given("REDIS_URL", redis_origin(given, lambda name: _is_true(given, name)))}


_PARTS: tuple[Callable[[Mapping[str, str]], dict[str, Given]], ...] = (
    _rules,
    _addresses,
    _logs,
    _plain,
    _switches,
    _tls,
    _traces,
    _start,
    _bounds,
    _overdraft,
    _refund,
    _request_limits,
    _origin,
)


def _is_true(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "false")
    if value not in TRUE + FALSE:
        raise _Refused(f"{name}: expected `true` or `false`, got {value!r}")
    return value in TRUE


def _contradictions(given: Mapping[str, str]) -> Iterator[str]:
    """Yield variables that can't be left out without changing decisions."""
    backend = given.get("BACKEND_TYPE", "redis")
    if backend != "redis":
        yield f"BACKEND_TYPE: {backend!r} is not supported: use Redis (REDIS_URL), or leave it out and count in memory"
    source = given.get("CONFIG_TYPE", "FILE")
    if source not in ("FILE", XDS):
        yield f"CONFIG_TYPE: {source!r} is not supported: expected FILE (RUNTIME_ROOT) or {XDS}"
    for name, instead in DECIDES_OTHERWISE.items():
        if given.get(name, FALSE[0]) not in FALSE:
            yield f"{name}: {given[name]!r} is not supported: {instead}"


def _warnings(given: Mapping[str, str]) -> Iterator[str]:
    for name, value in given.items():
        known = VARIABLES.get(name) or next(
            (rest for prefix, rest in PREFIXES.items() if name.startswith(prefix)), None
        )
        if known is not None and value not in known.harmless:
            yield f"{name}: {known.reason}"
