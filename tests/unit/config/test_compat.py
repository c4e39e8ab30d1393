"""HEADGATE_COMPAT=ratelimit: another service's environment, read as our settings."""

from pathlib import Path

import pytest
import yaml
from headgate.config import SETTINGS, SettingsError, load_settings, translate
from headgate.config.compat import RATELIMIT_DEFAULTS
from headgate.config.compat_unsupported import DECIDES_OTHERWISE, PREFIXES, VARIABLES
from headgate.origin.redis_origin.url import Topology, Verify, parse_redis_url

COMPAT = {"HEADGATE_COMPAT": "ratelimit"}
ROOT = Path(__file__).parents[3]
RULES = {"RUNTIME_ROOT": "/data"}


def read(**variables: str) -> dict[str, str]:
    """Settings by name, as text; without those that follow from the mode alone."""
    translation = translate({**COMPAT, **variables})
    assert translation.problems == ()
    by_mode = ("overdraft", "refund", "request_limits", "max_descriptors", "max_entries")
    return {name: given.text for name, given in translation.settings.items() if name not in by_mode}


def problems(**variables: str) -> list[str]:
    return list(translate({**COMPAT, **variables}).problems)


def warnings(**variables: str) -> list[str]:
    return list(translate({**COMPAT, **variables}).warnings)


def test_nothing_is_read_unless_asked_for() -> None:
    translation = translate({"RUNTIME_ROOT": "/data", "PORT": "1", "BACKEND_TYPE": "memcache", "DEBUG_PORT": "1"})
    assert (translation.settings, translation.warnings, translation.problems) == ({}, (), ())


def test_only_one_other_service_is_known() -> None:
    with pytest.raises(SettingsError, match="HEADGATE_COMPAT: expected `ratelimit`, got 'limitador'"):
        load_settings({"rules": "r"}, {"HEADGATE_COMPAT": "limitador"})


@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        ({}, {}),
        ({"RUNTIME_ROOT": "/data"}, {"rules": "/data/config"}),
        ({"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit"}, {"rules": "/data/ratelimit/config"}),
        (
            {"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "/ratelimit", "RUNTIME_APPDIRECTORY": "rules"},
            {"rules": "/data/ratelimit/rules"},
        ),
        ({"RUNTIME_SUBDIRECTORY": "ratelimit"}, {"rules": "/srv/runtime_data/current/ratelimit/config"}),
        ({"PORT": "80"}, {"http": "0.0.0.0:80"}),
        ({"HOST": "10.0.0.1"}, {"http": "10.0.0.1:8080"}),
        ({"HOST": "::1", "PORT": "80"}, {"http": "[::1]:80"}),
        ({"GRPC_PORT": "81"}, {"grpc": "0.0.0.0:81"}),
        ({"GRPC_HOST": "10.0.0.1", "GRPC_PORT": "81"}, {"grpc": "10.0.0.1:81"}),
        ({"GRPC_UDS": "/run/r.sock", "GRPC_PORT": "81"}, {"grpc": "unix:/run/r.sock"}),
        ({"LOG_LEVEL": "WARN"}, {"log_level": "warning"}),
        ({"LOG_LEVEL": "trace"}, {"log_level": "debug"}),
        ({"LOG_LEVEL": "Fatal"}, {"log_level": "error"}),
        ({"LOG_FORMAT": "text"}, {"log_format": "console"}),
        ({"LOG_FORMAT": "JSON"}, {"log_format": "json"}),
        ({"LIMIT_RESPONSE_HEADERS_ENABLED": "T"}, {"response_headers": "true"}),
        ({"LIMIT_RESPONSE_HEADERS_ENABLED": "0"}, {"response_headers": "false"}),
        ({"LIMIT_LIMIT_HEADER": "X-L"}, {"header_limit": "X-L"}),
        ({"LIMIT_REMAINING_HEADER": "X-R"}, {"header_remaining": "X-R"}),
        ({"LIMIT_RESET_HEADER": "X-S"}, {"header_reset": "X-S"}),
        ({"SHADOW_MODE": "true"}, {"shadow_mode": "true"}),
        ({"MERGE_DOMAIN_CONFIG": "true"}, {"merge_domains": "true"}),
        ({"RESPONSE_DYNAMIC_METADATA": "true"}, {"request_metadata": "true"}),
        ({"GRPC_MAX_CONCURRENT_STREAMS": "500"}, {"max_concurrent_streams": "500"}),
        ({"GRPC_MAX_CONCURRENT_STREAMS": "0"}, {}),
        ({"GRPC_SERVER_USE_TLS": "false", "GRPC_SERVER_TLS_CERT": "c", "GRPC_SERVER_TLS_KEY": "k"}, {}),
        (
            {
                "GRPC_SERVER_USE_TLS": "true",
                "GRPC_SERVER_TLS_CERT": "c",
                "GRPC_SERVER_TLS_KEY": "k",
                "GRPC_CLIENT_TLS_CACERT": "ca",
                "GRPC_CLIENT_TLS_SAN": "envoy",
            },
            {"tls_cert": "c", "tls_key": "k", "tls_client_ca": "ca", "tls_client_san": "envoy"},
        ),
        ({"LOG_LEVEL": "", "PORT": ""}, {}),
        ({"DEBUG_PORT": "6070"}, {"debug": "127.0.0.1:6070"}),
        ({"DEBUG_HOST": "0.0.0.0"}, {"debug": "0.0.0.0:6070"}),
        ({"PROMETHEUS_ADDR": ":19001"}, {}),
        (
            {"PROMETHEUS_ADDR": ":19001", "USE_PROMETHEUS": "true"},
            {"metrics": ":19001", "ratelimit_metrics": "true"},
        ),
        ({"CACHE_KEY_PREFIX": "team-a:"}, {"redis_prefix": "team-a:"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, {}),
        (
            {"TRACING_ENABLED": "true"},
            {"traces": "true", "trace_share": "1", "otlp_endpoint": "http://localhost:4318"},
        ),
        (
            {
                "TRACING_ENABLED": "true",
                "TRACING_SAMPLING_RATE": "0.25",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318",
            },
            {"traces": "true", "trace_share": "0.25", "otlp_endpoint": "http://c:4318"},
        ),
        ({"CONFIG_TYPE": "GRPC_XDS_SOTW"}, {"rules": "xds://localhost:18000", "xds_node_id": "default"}),
        (
            {
                "CONFIG_TYPE": "GRPC_XDS_SOTW",
                "CONFIG_GRPC_XDS_SERVER_URL": "dns:///plane:1",
                "CONFIG_GRPC_XDS_NODE_ID": "n",
                "CONFIG_GRPC_XDS_NODE_METADATA": "a=b,c=d",
                "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "x-a:b",
                "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "unused without TLS",
                "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "3s",
                "XDS_CLIENT_BACKOFF_MAX_INTERVAL": "1m30s",
                "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "4194304",
            },
            {
                "rules": "xds://plane:1",
                "xds_node_id": "n",
                "xds_node_metadata": "a=b,c=d",
                "xds_headers": "x-a:b",
                "xds_retry_s": "3",
                "xds_retry_max_s": "90",
                "xds_max_message_bytes": "4194304",
            },
        ),
    ],
    ids=lambda value: ",".join(f"{k}={v}" for k, v in value.items()) or "nothing",
)
def test_variables_and_what_they_mean(variables: dict[str, str], settings: dict[str, str]) -> None:
    assert read(**variables) == settings


@pytest.mark.parametrize(
    ("variables", "overdraft"),
    [
        ({}, True),
        ({"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "false"}, True),
        ({"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "true"}, False),
        ({"HEADGATE_OVERDRAFT": "false"}, False),
    ],
    ids=lambda value: ",".join(value) or "nothing" if isinstance(value, dict) else None,
)
def test_every_cost_is_charged_as_it_was_there(variables: dict[str, str], overdraft: bool) -> None:
    assert load_settings({"rules": "r"}, {**COMPAT, **variables}).overdraft is overdraft
    assert load_settings({"rules": "r"}, {}).overdraft is False


def test_hits_may_be_given_back_as_they_could_be_there() -> None:
    assert load_settings({"rules": "r"}, COMPAT).refund is True
    assert load_settings({"rules": "r", "refund": "false"}, COMPAT).refund is False
    assert load_settings({"rules": "r"}, {}).refund is False


def test_limits_in_requests_replace_the_rules_as_they_did_there_and_nowhere_else() -> None:
    """By default whoever may ask can't give himself more than a rule gives."""
    assert load_settings({"rules": "r"}, {}).request_limits == "lower"
    assert load_settings({"rules": "r"}, COMPAT).request_limits == "allow"
    assert load_settings({"rules": "r", "request_limits": "refuse"}, COMPAT).request_limits == "refuse"


@pytest.mark.parametrize(
    ("variables", "origin"),
    [
        ({"REDIS_URL": "redis:6379"}, "redis://redis:6379"),
        ({"REDIS_URL": "redis:6379", "REDIS_TYPE": "single", "REDIS_SOCKET_TYPE": "tcp"}, "redis://redis:6379"),
        ({"REDIS_URL": "redis:6379", "REDIS_AUTH": "s3cret"}, "redis://:s3cret@redis:6379"),
        ({"REDIS_URL": "redis:6379", "REDIS_AUTH": "me:p@ss/w:rd"}, "redis://me:p%40ss%2Fw%3Ard@redis:6379"),
        ({"REDIS_URL": "redis:6379", "REDIS_TLS": "true"}, "rediss://redis:6379"),
        ({"REDIS_URL": "redis://redis:6379/2", "REDIS_TLS": "true"}, "rediss://redis:6379/2"),
        ({"REDIS_URL": "redis://me:pw@redis:6379", "REDIS_AUTH": "other"}, "redis://me:pw@redis:6379"),
        ({"REDIS_URL": "a:1, b:2", "REDIS_TYPE": "CLUSTER"}, "redis+cluster://a:1,b:2"),
        ({"REDIS_URL": "main,a:1,b:2", "REDIS_TYPE": "SENTINEL"}, "redis+sentinel://a:1,b:2/main"),
        (
            {"REDIS_URL": "main,a:1", "REDIS_TYPE": "SENTINEL", "REDIS_SENTINEL_AUTH": "p w"},
            "redis+sentinel://a:1/main?sentinel_password=p+w",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_redis_becomes_an_origin(variables: dict[str, str], origin: str) -> None:
    assert read(**variables) == {"origin": origin}
    parse_redis_url(origin)


def test_redis_over_tls_keeps_its_files_and_how_much_is_verified() -> None:
    origin = read(
        REDIS_URL="main,a:1",
        REDIS_TYPE="SENTINEL",
        REDIS_TLS="true",
        REDIS_AUTH="me:secret",
        REDIS_SENTINEL_AUTH="them:other",
        REDIS_TLS_CACERT="/etc/ca.crt",
        REDIS_TLS_CLIENT_CERT="/etc/c.crt",
        REDIS_TLS_CLIENT_KEY="/etc/c.key",
        REDIS_TLS_SKIP_HOSTNAME_VERIFICATION="true",
    )["origin"]
    url = parse_redis_url(origin)
    assert url.kind is Topology.SENTINEL
    assert (url.credentials.user, url.credentials.password) == ("me", "secret")
    assert (url.sentinel_credentials.user, url.sentinel_credentials.password) == ("them", "other")
    assert url.tls is not None
    assert (url.tls.ca, url.tls.cert, url.tls.key) == ("/etc/ca.crt", "/etc/c.crt", "/etc/c.key")
    assert url.tls.verify is Verify.CHAIN


@pytest.mark.parametrize(
    ("variables", "begins"),
    [
        ({"BACKEND_TYPE": "memcache"}, "BACKEND_TYPE: 'memcache' is not supported"),
        ({"QUOTA_MODE": "true"}, "QUOTA_MODE: 'true' is not supported: it makes quotas of all rules"),
        ({"QUOTA_MODE": "yes"}, "QUOTA_MODE: 'yes' is not supported"),
        ({"USE_CALENDAR_MONTH_RATE_LIMIT": "1"}, "USE_CALENDAR_MONTH_RATE_LIMIT: '1' is not supported: a month is 30"),
        ({"CONFIG_TYPE": "CONSUL"}, "CONFIG_TYPE: 'CONSUL' is not supported"),
        (
            {"CONFIG_TYPE": "GRPC_XDS_SOTW", "XDS_CLIENT_BACKOFF_MAX_INTERVAL": "soon"},
            "XDS_CLIENT_BACKOFF_MAX_INTERVAL: expected a duration such as 3s or 500ms, got 'soon'",
        ),
        ({"GRPC_SERVER_USE_TLS": "true"}, "GRPC_SERVER_USE_TLS: needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY"),
        ({"LOG_LEVEL": "loud"}, "LOG_LEVEL: expected one of panic, fatal, error"),
        ({"SHADOW_MODE": "maybe"}, "SHADOW_MODE: expected `true` or `false`, got 'maybe'"),
        ({"REDIS_URL": "/run/redis.sock"}, "REDIS_URL: a Unix socket is not supported"),
        ({"REDIS_URL": "h:1", "REDIS_TYPE": "RING"}, "REDIS_TYPE: expected SINGLE, CLUSTER or SENTINEL, got 'RING'"),
        ({"REDIS_URL": "main", "REDIS_TYPE": "SENTINEL"}, "REDIS_URL: expected `name,host:port,…`"),
        ({"REDIS_URL": "redis://h:1", "REDIS_TYPE": "CLUSTER"}, "REDIS_URL: expected host:port without a scheme"),
        ({"REDIS_URL": "h:1", "REDIS_TLS": "perhaps"}, "REDIS_TLS: expected `true` or `false`"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_what_would_be_decided_differently_is_refused(variables: dict[str, str], begins: str) -> None:
    (problem,) = problems(**variables)
    assert problem.startswith(begins)


@pytest.mark.parametrize("name", DECIDES_OTHERWISE)
def test_what_would_decide_otherwise_may_be_switched_off(name: str) -> None:
    for value in ("", "0", "false"):
        translation = translate({**COMPAT, **RULES, name: value})
        assert (translation.problems, translation.warnings) == ((), ())


def test_one_problem_hides_neither_others_nor_what_is_good() -> None:
    translation = translate({**COMPAT, **RULES, "LOG_LEVEL": "loud", "BACKEND_TYPE": "memcache"})
    assert len(translation.problems) == 2
    assert translation.settings["rules"].text == "/data/config"


def test_what_has_no_equivalent_is_said_once_each() -> None:
    said = warnings(USE_STATSD="true", PROMETHEUS_PATH="/m", REDIS_POOL_SIZE="10", UNRELATED="x")
    assert [line.partition(":")[0] for line in said] == [
        "USE_STATSD",
        "PROMETHEUS_PATH",
        "REDIS_POOL_SIZE",
    ]
    assert "GET /metrics" in said[0]


def test_what_headgate_does_anyway_is_not_worth_a_line() -> None:
    assert (
        warnings(USE_STATSD="false", REDIS_SOCKET_TYPE="tcp", REDIS_PERSECOND="false", LOCAL_CACHE_SIZE_IN_BYTES="0")
        == []
    )
    assert (
        warnings(HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED="true", USE_PROMETHEUS="true", TRACING_ENABLED="false") == []
    )


def test_every_setting_named_here_exists() -> None:
    everything = {
        "RUNTIME_ROOT": "r", "PORT": "1", "GRPC_PORT": "2", "LOG_LEVEL": "info", "LOG_FORMAT": "json",
        "LIMIT_RESPONSE_HEADERS_ENABLED": "1", "LIMIT_LIMIT_HEADER": "a", "LIMIT_REMAINING_HEADER": "b",
        "LIMIT_RESET_HEADER": "c", "SHADOW_MODE": "1", "RESPONSE_DYNAMIC_METADATA": "1", "MERGE_DOMAIN_CONFIG": "1",
        "GRPC_SERVER_USE_TLS": "1", "GRPC_SERVER_TLS_CERT": "x", "GRPC_SERVER_TLS_KEY": "y",
        "GRPC_CLIENT_TLS_CACERT": "z", "GRPC_MAX_CONCURRENT_STREAMS": "9", "REDIS_URL": "h:1",
    }  # fmt: skip
    assert set(read(**everything)) <= {setting.name for setting in SETTINGS}
    assert len(read(**everything)) == 17


def test_a_variable_is_either_understood_or_explained() -> None:
    understood = {"RUNTIME_ROOT", "PORT", "REDIS_URL", "REDIS_AUTH", "REDIS_TLS", "SHADOW_MODE", "LOG_LEVEL"}
    assert not understood & VARIABLES.keys()
    assert not any(name.startswith(prefix) for name in understood for prefix in PREFIXES)


def test_the_page_for_people_names_every_variable() -> None:
    page = (Path(__file__).parents[3] / "docs" / "migrate.md").read_text()
    named = [
        *VARIABLES,
        *DECIDES_OTHERWISE,
        *(f"{prefix}…" for prefix in PREFIXES),
        "SHADOW_MODE",
        "GRPC_UDS",
        "REDIS_URL",
        "REDIS_AUTH",
    ]
    assert [name for name in named if f"`{name}" not in page] == []


def test_our_own_variables_and_flags_win_and_the_file_does_not(tmp_path: Path) -> None:
    config = tmp_path / "headgate.yaml"
    config.write_text("log_level: error\nlog_format: console\nregion: eu\n")
    environ = {
        **COMPAT,
        **RULES,
        "PORT": "1000",
        "GRPC_PORT": "2000",
        "LOG_LEVEL": "debug",
        "HEADGATE_GRPC": "127.0.0.1:3000",
        "HEADGATE_RULES": "/ours",
    }
    settings = load_settings({"config": str(config), "http": "127.0.0.1:4000"}, environ)
    assert (settings.grpc, settings.http, settings.rules) == ("127.0.0.1:3000", "127.0.0.1:4000", Path("/ours"))
    assert (settings.log_level, settings.log_format, settings.region) == ("debug", "console", "eu")


def test_a_bad_value_is_reported_under_the_variable_it_came_from() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {**COMPAT, **RULES, "PORT": "http", "LIMIT_LIMIT_HEADER": "not a header"})
    names = [problem.partition(":")[0] for problem in caught.value.problems]
    assert names == ["PORT", "LIMIT_LIMIT_HEADER"]


def test_a_password_is_in_no_message() -> None:
    environ = {**COMPAT, **RULES, "REDIS_URL": "", "REDIS_AUTH": "s3cret"}
    assert load_settings({}, environ).origin == "memory://"
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {**environ, "REDIS_URL": "h:1", "REDIS_TYPE": "RING"})
    assert "s3cret" not in str(caught.value)


ENVOY_GATEWAY = {
    "RUNTIME_ROOT": "/data",
    "RUNTIME_SUBDIRECTORY": "ratelimit",
    "RUNTIME_IGNOREDOTFILES": "true",
    "RUNTIME_WATCH_ROOT": "false",
    "LOG_LEVEL": "info",
    "USE_STATSD": "false",
    "CONFIG_TYPE": "GRPC_XDS_SOTW",
    "CONFIG_GRPC_XDS_SERVER_URL": "envoy-gateway:18001",
    "CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit",
    "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true",
    "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/certs/tls.crt",
    "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "/certs/tls.key",
    "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "/certs/ca.crt",
    "GRPC_SERVER_USE_TLS": "true",
    "GRPC_SERVER_TLS_CERT": "/certs/tls.crt",
    "GRPC_SERVER_TLS_KEY": "/certs/tls.key",
    "GRPC_SERVER_TLS_CA_CERT": "/certs/ca.crt",
    "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
    "REDIS_SOCKET_TYPE": "tcp",
    "REDIS_URL": "redis.redis-system:6379",
    "USE_PROMETHEUS": "true",
    "PROMETHEUS_ADDR": ":19001",
    "PROMETHEUS_MAPPER_YAML": "/etc/statsd-exporter/conf.yaml",
}
"""What Envoy Gateway gives the pod of its rate-limit service."""


def test_the_environment_of_envoy_gateway_needs_nothing_more_and_warns_of_nothing() -> None:
    environ = {**RATELIMIT_DEFAULTS, **COMPAT, **ENVOY_GATEWAY}
    settings, certs = load_settings({}, environ), Path("/certs")
    assert translate(environ).warnings == ()
    assert (settings.rules, settings.xds_node_id) == ("xds://envoy-gateway:18001", "envoy-ratelimit")
    assert (settings.xds_tls, settings.xds_ca) == (True, certs / "ca.crt")
    assert (settings.xds_cert, settings.xds_key) == (certs / "tls.crt", certs / "tls.key")
    assert (settings.tls_cert, settings.tls_key) == (certs / "tls.crt", certs / "tls.key")
    assert settings.tls_client_ca == certs / "ca.crt", "Envoy's certificate is verified"
    assert (settings.grpc, settings.http) == ("0.0.0.0:8081", "0.0.0.0:8080")
    assert (settings.metrics, settings.debug) == ("[::]:19001", "127.0.0.1:6070")
    assert settings.origin == "redis://redis.redis-system:6379"
    assert settings.ratelimit_metrics
    assert settings.start_without_rules


def test_the_example_of_values_for_envoy_gateway_is_understood() -> None:
    values = yaml.safe_load((ROOT / "examples/envoy/kubernetes/gateway-helm/values.yaml").read_text())
    kubernetes = values["config"]["envoyGateway"]["provider"]["kubernetes"]
    added = {item["name"]: item["value"] for item in kubernetes["rateLimitDeployment"]["container"]["env"]}
    settings = load_settings({}, {**COMPAT, **ENVOY_GATEWAY, **added})
    assert (settings.response_headers, settings.reason_metadata, settings.drain_s) == (True, True, 15)


def test_with_tracing_envoy_gateway_names_the_spans_which_is_said() -> None:
    tracing = {
        "TRACING_ENABLED": "true",
        "TRACING_SERVICE_NAME": "envoy-ratelimit",
        "TRACING_SERVICE_NAMESPACE": "envoy-gateway-system",
        "TRACING_SERVICE_INSTANCE_ID": "pod",
        "TRACING_SAMPLING_RATE": "1.0",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
    }
    environ = {**COMPAT, **ENVOY_GATEWAY, **tracing}
    settings = load_settings({}, environ)
    assert (settings.traces, settings.trace_share, settings.otlp_endpoint) == (True, 1.0, "http://collector:4318")
    assert len(translate(environ).warnings) == 3


@pytest.mark.parametrize(
    ("variables", "starts"),
    [
        ({}, False),
        ({"FORCE_START_WITHOUT_INITIAL_CONFIG": "true"}, True),
        ({"FORCE_START_WITHOUT_INITIAL_CONFIG": "true", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true"}, False),
    ],
    ids=lambda value: ",".join(value) or "nothing" if isinstance(value, dict) else None,
)
def test_whether_it_is_ready_before_rules_have_come(variables: dict[str, str], starts: bool) -> None:
    assert load_settings({"rules": "r"}, {**COMPAT, **variables}).start_without_rules is starts


def test_what_policies_have_no_field_for_is_set_beside_them() -> None:
    ours = {"HEADGATE_RULES_OVERLAY": "/o", "HEADGATE_DEFAULT_ALGORITHM": "gcra", "HEADGATE_DEFAULT_ON_ERROR": "closed"}
    laid = load_settings({}, {**COMPAT, **ENVOY_GATEWAY, **ours})
    assert (laid.rules_overlay, laid.default_algorithm, laid.default_on_error) == (Path("/o"), "gcra", "closed")


def test_the_check_of_envoys_certificate_can_be_switched_off() -> None:
    assert load_settings({}, {**COMPAT, **ENVOY_GATEWAY}).client_ca is not None
    off = load_settings({}, {**COMPAT, **ENVOY_GATEWAY, "HEADGATE_TLS_CLIENT_VERIFY": "false"})
    assert off.client_ca is None
    assert off.tls_cert is not None
