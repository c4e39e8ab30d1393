"""Settings: one table, three sources, every problem at once."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from headgate.config import REQUIRED, SETTINGS, Peer, Settings, SettingsError, load_settings
from headgate.config.document import configuration_page
from headgate.config.handover import settings_from_plain, settings_to_plain
from headgate.config.kinds import pairs_of

REPOSITORY = Path(__file__).parents[3]
RULES = {"rules": "some/rules"}


def problems(flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(RULES if flags is None else flags, environ or {})
    return list(caught.value.problems)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_defaults_are_those_of_the_design() -> None:
    settings = load_settings(RULES, {})
    assert settings == Settings(rules=Path("some/rules"))
    assert (settings.grpc, settings.http, settings.exchange) == ("0.0.0.0:8081", "0.0.0.0:8080", "0.0.0.0:8082")
    assert (settings.region, settings.origin, settings.transport) == ("local", "memory://", "auto")
    assert (settings.origin_deadline_ms, settings.drain_s, settings.max_cells) == (5, 5.0, None)
    assert (settings.max_message_bytes, settings.response_headers, settings.workers) == (65536, False, 1)


def test_every_default_is_accepted_by_its_own_parser() -> None:
    for setting in SETTINGS:
        if setting.default is not REQUIRED and setting.default not in (None, ()):
            assert setting.kind.parse(setting.default_text if setting.default != "" else "") == setting.default


def test_settings_can_not_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_settings(RULES, {}).region = "elsewhere"  # type: ignore[misc]


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    config = write(tmp_path / "headgate.yaml", "rules: from-file\nregion: from-file\nnode_id: from-file\n")
    environ = {"HEADGATE_REGION": "from-env", "HEADGATE_RULES": "from-env"}
    settings = load_settings({"config": config, "rules": "from-flag"}, environ)
    assert (str(settings.rules), settings.region, settings.node_id) == ("from-flag", "from-env", "from-file")
    assert settings.grpc == "0.0.0.0:8081"


def test_every_setting_can_be_given_in_all_three_ways(tmp_path: Path) -> None:
    for setting in SETTINGS:
        text = _another_value(setting.name)
        flags: dict[str, Any] = {**RULES, setting.name: [text] if setting.repeatable else text}
        config = write(tmp_path / "headgate.yaml", f"{setting.name}: {text!r}\n")
        by_flag = _read(setting.name, flags, {})
        by_environment = _read(setting.name, RULES if setting.name != "rules" else {}, {setting.env: text})
        by_file = _read(setting.name, {"config": config} | (RULES if setting.name != "rules" else {}), {})
        assert by_flag == by_environment == by_file != setting.default, setting.name


def _read(name: str, flags: dict[str, Any], environ: dict[str, str]) -> object:
    # Some settings need company; what is tested is the one named.
    if name in ("traces", "decision_log_otlp"):
        environ = {**environ, "HEADGATE_OTLP_ENDPOINT": "http://collector:4318"}
    if name == "workers":
        environ = {**environ, "HEADGATE_ORIGIN": "redis://h:1"}
    if name.startswith("tls_"):
        company = {"HEADGATE_TLS_CERT": "x", "HEADGATE_TLS_KEY": "x"}
        if name == "tls_client_san":
            company["HEADGATE_TLS_CLIENT_CA"] = "x"
        company.pop(f"HEADGATE_{name.upper()}", None)
        environ = {**company, **environ}
    if name.startswith("xds_"):
        company = {"HEADGATE_XDS_TLS": "true", "HEADGATE_XDS_CERT": "x", "HEADGATE_XDS_KEY": "x"}
        company.pop(f"HEADGATE_{name.upper()}", None)
        environ = environ if name == "xds_tls" else {**company, **environ}
    if name in ("plane_tls", "plane_ca", "plane_cert", "plane_key", "plane_server_name"):
        company = {"HEADGATE_PLANE_TLS": "true", "HEADGATE_PLANE_CERT": "x", "HEADGATE_PLANE_KEY": "x"}
        company.pop(f"HEADGATE_{name.upper()}", None)
        environ = environ if name == "plane_tls" else {**company, **environ}
    if name.startswith("exchange_tls_"):
        three = ("HEADGATE_EXCHANGE_TLS_CERT", "HEADGATE_EXCHANGE_TLS_KEY", "HEADGATE_EXCHANGE_TLS_CA")
        environ = {variable: "x" for variable in three if variable != f"HEADGATE_{name.upper()}"} | environ
    if name.startswith("admin_"):
        company = {f"HEADGATE_ADMIN_TLS_{part}": "x" for part in ("CERT", "KEY", "CLIENT_CA")}
        company.pop(f"HEADGATE_{name.upper()}", None)
        environ = {**company, **environ}
    return getattr(load_settings(flags, environ), name)


def _another_value(name: str) -> str:
    special = {
        "exchange_inside": "false",
        "tls_client_verify": "false",
        "decision_log": "false",
        "decision_log_bytes": "134217728",
        "grpc": "127.0.0.1:1",
        "http": "127.0.0.1:2",
        "admin": "127.0.0.1:3",
        "admin_grpc": "127.0.0.1:4",
        "metrics": "127.0.0.1:5",
        "debug": "127.0.0.1:6",
        "exchange": "127.0.0.1:3",
        "transport": "grpcio",
        "request_limits": "refuse",
        "rules_accept": "all",
        "default_algorithm": "gcra",
        "default_on_error": "closed",
        "origin": "redis://h:1",
        "otlp_endpoint": "http://h:1",
        "peer": "eu=h:1",
        "trusted_network": "10.0.0.0/8",
        "max_unfinished_bytes": "2097152",
        "log_level": "debug",
        "log_format": "console",
        "max_pending_bytes": "2097152",
        "exchange_new_keys_bytes": "2097152",
        "breaker_error_rate": "0.5",
        "breaker_missed_share": "0.7",
        "near_limit_ratio": "0.5",
        "trace_share": "0.5",
        "socket_mode": "0660",
        "max_cells": "2048",
        "max_descriptors": "7",
        "max_entries": "7",
        "xds_node_metadata": "zone=a",
        "xds_headers": "authorization:x y",
        "xds_protocol": "delta",
        "xds_max_message_bytes": "1048576",
        "xds_retry_max_s": "40",
        "upstream": "root:8083,other:8083",
        "rollout_stages": "5%,25%",
        "rollout_expect_denials": "0.5%",
        "plane_store": "postgresql://headgate@db/plane",
    }
    (setting,) = [setting for setting in SETTINGS if setting.name == name]
    if name in special:
        return special[name]
    if isinstance(setting.default, bool):
        return "true"
    return "2048" if isinstance(setting.default, int) and name not in ("workers", "origin_deadline_ms") else "7"


def test_the_file_may_come_from_the_environment_and_the_flag_wins(tmp_path: Path) -> None:
    one = write(tmp_path / "one.yaml", "rules: one")
    two = write(tmp_path / "two.yaml", "rules: two")
    assert load_settings({}, {"HEADGATE_CONFIG": one}).rules == Path("one")
    assert load_settings({"config": two}, {"HEADGATE_CONFIG": one}).rules == Path("two")


def test_networks_are_repeated_and_have_one_spelling() -> None:
    given = ["10.0.0.0/255.0.0.0", "192.0.2.7", "FD00:0::/8"]
    assert load_settings({**RULES, "trusted_network": given}, {}).trusted_network == (
        "10.0.0.0/8",
        "192.0.2.7/32",
        "fd00::/8",
    )
    with pytest.raises(SettingsError) as caught:
        load_settings({**RULES, "trusted_network": ["10.1.2.3/8"]}, {})
    assert caught.value.problems == (
        "--trusted-network: expected a network as in `10.0.0.0/8` or `fd00::/8`, or one address: "
        "10.1.2.3/8 has host bits set",
    )


def test_peers_are_repeated_listed_or_separated_by_commas(tmp_path: Path) -> None:
    peers = (Peer("eu", "h1:1"), Peer("us", "unix:/s"))
    config = write(tmp_path / "headgate.yaml", "peer:\n- eu=h1:1\n- us=unix:/s\n")
    assert load_settings({**RULES, "peer": ["eu=h1:1", "us=unix:/s"]}, {}).peer == peers
    assert load_settings(RULES, {"HEADGATE_PEER": "eu=h1:1, us=unix:/s"}).peer == peers
    assert load_settings({**RULES, "config": config}, {}).peer == peers


def test_file_problems_name_file_line_key_and_what_is_accepted(tmp_path: Path) -> None:
    config = write(
        tmp_path / "headgate.yaml",
        "rules: r\n"
        "workers: many\n"
        "max_cells: 5\n"
        "reponse_headers: true\n"
        "grpc: [1, 2]\n"
        "http:\n"
        "  port: 1\n"
        "region: a\n"
        "region: b\n"
        "node_id:\n"
        "shadow_mode: maybe\n",
    )
    assert problems({"config": config}) == [
        f"{config}:7: http: expected a plain value, got a mapping",
        f"{config}:9: region: is given twice, first on line 8",
        f"{config}:10: node_id: has no value",
        f"{config}:2: workers: expected a whole number from 1 to 1024, got 'many'",
        f"{config}:3: max_cells: expected a whole number from 1000 to 1000000000, got '5'",
        f"{config}:4: reponse_headers: is not a setting; did you mean response_headers?",
        f"{config}:5: grpc: expected `host:port`, `[ipv6]:port`, `:port` (every address) or `unix:/path`, got a list",
        f"{config}:11: shadow_mode: expected `true` or `false`, got 'maybe'",
    ]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"rules: [1\n", 2, "is not YAML: "),
        (b"rules: r\n  x: y\n", 2, "is not YAML: "),
        (b"rules: r\n\x00", 2, "is not YAML: "),
        (b"a: 1\nrules: \xff\n", 2, "is not UTF-8"),
        (b"- a\n- b\n", 1, "expected `key: value` lines, got a list"),
        (b"text\n", 1, "expected `key: value` lines, got a single value"),
        (b"a: 1\n---\nb: 2\n", 2, "is not YAML: "),
        (b"[" * 5000, 1, "is n"),
    ],
)
def test_broken_files_are_refused_with_their_line(tmp_path: Path, content: bytes, line: int, reason: str) -> None:
    path = tmp_path / "headgate.yaml"
    path.write_bytes(content)
    (problem,) = problems({"config": str(path)})
    assert problem.startswith(f"{path}:{line}: {reason}")


def test_a_file_that_is_missing_or_too_large_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert problems({**RULES, "config": str(missing)}) == [f"{missing}: can't be read: No such file or directory"]
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (1024 * 1024 + 1))
    assert problems({**RULES, "config": str(large)}) == [f"{large}: is larger than 1048576 bytes: not a config file"]


def test_an_empty_file_is_no_setting_at_all(tmp_path: Path) -> None:
    assert load_settings({**RULES, "config": write(tmp_path / "empty.yaml", "# nothing\n")}, {}).region == "local"


def test_unknown_environment_variables_are_refused_with_a_suggestion() -> None:
    assert problems(environ={"HEADGATE_ORIGN": "memory://", "PATH": "/bin", "HEADGATE_QQQQQQQQ": "1"}) == [
        "HEADGATE_ORIGN: is not a setting; did you mean HEADGATE_ORIGIN?",
        "HEADGATE_QQQQQQQQ: is not a setting",
    ]


def test_what_kubernetes_adds_for_a_service_of_our_name_is_ignored() -> None:
    environ = {
        "HEADGATE_SERVICE_HOST": "10.0.0.1",
        "HEADGATE_SERVICE_PORT": "8081",
        "HEADGATE_SERVICE_PORT_GRPC": "8081",
        "HEADGATE_PORT": "tcp://10.0.0.1:8081",
        "HEADGATE_PORT_8081_TCP": "tcp://10.0.0.1:8081",
        "HEADGATE_PORT_8081_TCP_ADDR": "10.0.0.1",
        "HEADGATE_HTTP_SERVICE_HOST": "10.0.0.1",
    }
    assert load_settings(RULES, environ) == load_settings(RULES, {})


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load_settings(RULES, {"HEADGATE_REGION": "", "HEADGATE_PEER": ""}).region == "local"


def test_all_problems_of_all_sources_are_reported_at_once(tmp_path: Path) -> None:
    config = write(tmp_path / "headgate.yaml", "rules: r\ndrain_s: -1\n")
    found = problems({"config": config, "workers": "0"}, {"HEADGATE_LOG_LEVEL": "loud"})
    assert found == [
        f"{config}:2: drain_s: expected a number from 0 to 3600, got '-1'",
        "HEADGATE_LOG_LEVEL: expected one of `debug`, `info`, `warning`, `error`, got 'loud'",
        "--workers: expected a whole number from 1 to 1024, got '0'",
    ]


def test_rules_are_required() -> None:
    assert problems({}) == ["rules: is required: give --rules DIR|URL, HEADGATE_RULES or `rules:` in the config file"]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            {"workers": "4"},
            "--workers: 4 processes can't share `memory://`, each would count by itself: use a Redis origin "
            "(--origin redis://host:port), or run one process (--workers 1)",
        ),
        ({"tls_cert": "c"}, "--tls-cert: needs tls_key beside it"),
        ({"tls_key": "k"}, "--tls-key: needs tls_cert beside it"),
        ({"tls_client_ca": "a"}, "--tls-client-ca: needs tls_cert and tls_key beside it"),
        (
            {"tls_client_san": ["edge.example"]},
            "--tls-client-san: needs tls_client_ca beside it: without it nobody shows a certificate",
        ),
        (
            {"exchange_tls_key": "k"},
            "--exchange-tls-key: needs exchange_tls_cert and exchange_tls_ca beside it: "
            "peers show each other certificates",
        ),
        (
            {"exchange_tls_cert": "c", "exchange_tls_key": "k"},
            "--exchange-tls-cert: needs exchange_tls_ca beside it: peers show each other certificates",
        ),
        (
            {"http": "h:7", "exchange": "h:7", "peer": ["a=h:1"]},
            "--exchange: http listens on h:7 too: give each its own address",
        ),
        ({"http": "h:7", "admin": "h:7"}, "--admin: http listens on h:7 too: give each its own address"),
        (
            {"grpc": "h:1", "http": "h:1"},
            "--http: grpc listens on h:1 too: give each its own address",
        ),
        ({"peer": ["local=h:1"]}, "--peer: 'local' is this region itself: name only the others"),
        ({"peer": ["a=h:1", "a=h:2"]}, "--peer: 'a' is given twice"),
        (
            {"header_limit": "X-A", "header_reset": "x-a"},
            "--header-reset: 'x-a' is the name of header_limit too",
        ),
        (
            {"rules": "plane://root:8083", "default_algorithm": "gcra"},
            "--default-algorithm: has no place beside a plane (--rules): say it in the rules, or in rules_overlay",
        ),
    ],
)
def test_contradictions_say_what_to_do(flags: dict[str, Any], problem: str) -> None:
    assert problems({**RULES, **flags}) == [problem]


def test_both_listeners_may_take_free_ports() -> None:
    assert load_settings({**RULES, "grpc": "127.0.0.1:0", "http": "127.0.0.1:0"}, {}).http == "127.0.0.1:0"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redsi://h:1", "expected `memory://`, or hosts after"),
        ("memory://x", "`memory://` takes nothing after it"),
        ("redis://", "`redis://` needs at least one host"),
        ("redis://user:hunter2@", "`redis://` needs at least one host"),
        ("redis://user:hunter2@/0", "`redis://` needs at least one host"),
        ("user:hunter2@h", "expected `memory://`, or hosts after"),
        ("hunter2", "expected `memory://`, or hosts after"),
        ("file:", "`file:` needs the path of a file"),
        ("file://", "`file:` needs the path of a file"),
    ],
)
def test_origin_problems_never_repeat_the_url(url: str, reason: str) -> None:
    (problem,) = problems({**RULES, "origin": url})
    assert problem.startswith(f"--origin: {reason}")
    assert "hunter2" not in problem


@pytest.mark.parametrize("url", ["redis://:hunter2ⅷ@h℀", "redis://:[hunter2@h", "redis://:hunt/er2@h"])
def test_an_odd_origin_url_is_left_to_its_own_parser(url: str) -> None:
    """Others repeat in their errors what they can't split."""
    assert load_settings({**RULES, "origin": url}, {}).origin == url


def test_a_file_instead_of_an_origin_url_is_found_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    for given in ("file:/run/o", "file:///run/o", "file:run/o"):
        assert load_settings({**RULES, "origin": given}, {}).origin == "file:/run/o"


@pytest.mark.parametrize("prefix", ["", "a b", "a{b}", "a*", "a/b", "é", "x" * 129])
def test_what_is_no_prefix_is_refused(prefix: str) -> None:
    (problem,) = problems({**RULES, "redis_prefix": prefix})
    assert problem.startswith("--redis-prefix: expected 1 to 128 letters, digits, `.`, `_`, `-` or `:`, got ")
    assert load_settings({**RULES, "redis_prefix": "prod:eu-1_a.b"}, {}).redis_prefix == "prod:eu-1_a.b"


@pytest.mark.parametrize("mode", ["", "600x", "0400", "1777", "0o660", "777777", "rw"])
def test_what_is_no_mode_is_refused(mode: str, tmp_path: Path) -> None:
    (problem,) = problems({**RULES, "socket_mode": mode})
    assert problem.startswith("--socket-mode: expected an octal mode from `0600` to `0777`, got ")
    config = write(tmp_path / "headgate.yaml", "rules: r\nsocket_mode: 0660\n")
    assert load_settings({"config": config}, {}).socket_mode == "0660"


@pytest.mark.parametrize(
    "url",
    [
        "h:4318",
        "grpc://h:4317",
        "http://",
        "http://h:port",
        "http://h:0",
        "http://[h",
        "http://h/?hunter2",
        "http://h#x",
    ],
)
def test_what_is_no_address_of_a_collector_is_refused(url: str) -> None:
    (problem,) = problems({**RULES, "otlp_endpoint": url})
    assert problem == "--otlp-endpoint: expected `http://host:port` or `https://host:port`"


def test_the_documentation_is_current() -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    assert page == configuration_page(), "run: python -m headgate.config.document > docs/configuration.md"


def test_the_documentation_names_every_flag_and_variable() -> None:
    page = configuration_page()
    for setting in SETTINGS:
        assert f"| `{setting.name}` | `{setting.flag}`<br>`{setting.env}`" in page


@pytest.mark.parametrize("name", ["", "a*b", "*", "a,b", "a b", "*.*.example", "spiffe://a/*/b"])
def test_what_is_no_name_of_a_certificate_is_refused(name: str) -> None:
    tls = {"tls_cert": "c", "tls_key": "k", "tls_client_ca": "a"}
    (problem,) = problems({**RULES, **tls, "tls_client_san": ["*.example", "spiffe://a/*", "10.0.0.1", name]})
    assert problem.startswith("--tls-client-san: expected any number of a name in a certificate")


def test_a_tab_in_the_config_file_is_named(tmp_path: Path) -> None:
    config = write(tmp_path / "headgate.yaml", "rules: r\npeer:\n\t- eu=h:1\n")
    (problem,) = problems({"config": config})
    assert problem.startswith(f"{config}:3: is not YAML: ")
    assert problem.endswith("(a tab: YAML is indented with spaces only)")


def test_rules_are_a_directory_or_an_xds_server() -> None:
    assert load_settings({"rules": "some/rules"}, {}).rules == Path("some/rules")
    assert load_settings({"rules": "xds://gateway:18001"}, {}).rules == "xds://gateway:18001"
    (problem,) = problems({"rules": "xds://gateway"})
    assert problem.startswith("--rules: address 'gateway': write host:port or unix:/path")
    # Handed to workers as they are.
    for given in ("some/rules", "xds://gateway:18001"):
        settings = load_settings({"rules": given}, {})
        assert settings_from_plain(settings_to_plain(settings)) == settings


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"xds_headers": "hunter2"}, "--xds-headers: expected `header:value`, with commas between them; headers in"),
        ({"xds_headers": "Authorization:hunter2"}, "--xds-headers: expected `header:value`"),
        ({"xds_node_metadata": "zone"}, "--xds-node-metadata: expected `name=value`, with commas between them"),
        ({"xds_node_id": "a b"}, "--xds-node-id: expected 1 to 256 printable characters without blanks"),
        ({"xds_ca": "ca.pem"}, "--xds-ca: needs xds_tls beside it"),
        ({"xds_server_name": "gateway"}, "--xds-server-name: needs xds_tls beside it"),
        ({"xds_tls": "true", "xds_cert": "c"}, "--xds-cert: needs xds_key beside it"),
        ({"xds_tls": "true", "xds_key": "k"}, "--xds-key: needs xds_cert beside it"),
        ({"xds_retry_s": "60"}, "xds_retry_max_s: is less than xds_retry_s, the first wait"),
    ],
)
def test_settings_of_an_xds_server_that_make_no_sense_are_refused(given: dict[str, str], complaint: str) -> None:
    (problem,) = problems({"rules": "xds://gateway:1", **given})
    assert problem.startswith(complaint)
    assert "hunter2" not in problem


def test_pairs_are_taken_apart_at_the_first_separator() -> None:
    settings = load_settings({**RULES, "xds_headers": "a:b:c, d: e", "xds_node_metadata": "k=v=w,x="}, {})
    assert pairs_of(settings.xds_headers, ":") == {"a": "b:c", "d": "e"}
    assert pairs_of(settings.xds_node_metadata, "=") == {"k": "v=w", "x": ""}
    assert pairs_of("", "=") == {}
