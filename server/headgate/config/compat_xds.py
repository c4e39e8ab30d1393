"""ratelimit's CONFIG_GRPC_XDS_… and XDS_CLIENT_… variables as the settings of an xDS server."""

import re
from collections.abc import Callable, Mapping

XDS = "GRPC_XDS_SOTW"

_SERVER = "CONFIG_GRPC_XDS_SERVER_URL"
_TLS = "CONFIG_GRPC_XDS_SERVER_USE_TLS"
_PLAIN: Mapping[str, str] = {
    "CONFIG_GRPC_XDS_NODE_METADATA": "xds_node_metadata",
    "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "xds_headers",
}
_TLS_PLAIN: Mapping[str, str] = {
    "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "xds_ca",
    "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "xds_cert",
    "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "xds_key",
    "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "xds_server_name",
}
_DURATIONS: Mapping[str, str] = {
    "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "xds_retry_s",
    "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "xds_retry_s",
    "XDS_CLIENT_BACKOFF_MAX_INTERVAL": "xds_retry_max_s",
}
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NODE = "default"
"""ratelimit's name of a node that has been given none."""

Named = tuple[str, str]
"""A variable, and the setting's value as text."""


class XdsProblem(Exception):
    """These variables describe no xDS server that could be asked; the message says why."""


def xds_rules(given: Mapping[str, str], is_true: Callable[[str], bool]) -> dict[str, Named]:
    """`rules` as `xds://host:port`, and what goes with it, each with the variable that it came from."""
    server = given.get(_SERVER, "localhost:18000").removeprefix("dns:///")
    found = {
        "rules": (_SERVER, f"xds://{server}"),
        "xds_node_id": ("CONFIG_GRPC_XDS_NODE_ID", given.get("CONFIG_GRPC_XDS_NODE_ID", _NODE)),
    }
    names = {**_PLAIN, **_TLS_PLAIN} if is_true(_TLS) else _PLAIN
    found |= {setting: (name, given[name]) for name, setting in names.items() if name in given}
    if is_true(_TLS):
        found["xds_tls"] = (_TLS, "true")
    found |= {setting: (name, _seconds(name, given[name])) for name, setting in _DURATIONS.items() if name in given}
    size = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"
    return {**found, "xds_max_message_bytes": (size, given[size])} if size in given else found


def _seconds(name: str, text: str) -> str:
    """Read a duration as Go writes it: `3s`, `1m30s`, `500ms`."""
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise XdsProblem(f"{name}: expected a duration such as 3s or 500ms, got {text!r}")
    return f"{sum(float(number) * _UNIT_S[unit] for number, unit in parts):g}"
