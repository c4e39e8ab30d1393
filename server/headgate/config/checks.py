"""Checks of settings against each other.

Each check yields lines that say what to change. `where` has the flag, variable or
file line that gave a setting its value, if any did.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_NEEDS = (
    ("tls_cert", "tls_key", "tls_key beside it"),
    ("tls_key", "tls_cert", "tls_cert beside it"),
    ("tls_client_ca", "tls_cert", "tls_cert and tls_key beside it"),
    ("tls_client_san", "tls_client_ca", "tls_client_ca beside it: without it nobody shows a certificate"),
    ("admin_tls_cert", "admin_tls_key", "admin_tls_key beside it"),
    ("admin_tls_key", "admin_tls_cert", "admin_tls_cert beside it"),
    ("admin_tls_client_ca", "admin_tls_cert", "admin_tls_cert and admin_tls_key beside it"),
    ("admin_tls_client_san", "admin_tls_client_ca", "admin_tls_client_ca beside it: else nobody shows a certificate"),
    ("xds_ca", "xds_tls", "xds_tls beside it"),
    ("xds_cert", "xds_tls", "xds_tls beside it"),
    ("xds_cert", "xds_key", "xds_key beside it"),
    ("xds_key", "xds_cert", "xds_cert beside it"),
    ("xds_server_name", "xds_tls", "xds_tls beside it"),
    ("plane_ca", "plane_tls", "plane_tls beside it"),
    ("plane_cert", "plane_tls", "plane_tls beside it"),
    ("plane_cert", "plane_key", "plane_key beside it"),
    ("plane_key", "plane_cert", "plane_cert beside it"),
    ("plane_server_name", "plane_tls", "plane_tls beside it"),
    ("traces", "otlp_endpoint", "otlp_endpoint beside it: the collector that spans are sent to"),
    ("decision_log_otlp", "otlp_endpoint", "otlp_endpoint beside it: the collector that records are sent to"),
)
"""Settings that are of no use without another one, which one, and what to say where it is missing."""


def cross_checks(values: Mapping[str, Any], where: Mapping[str, str]) -> Iterator[str]:
    """Every contradiction, as `where: reason`."""

    def at(name: str) -> str:
        return where.get(name, name)

    yield from _check_workers(values, at("workers"))
    for name, needed, what in _NEEDS:
        if values[name] and not values[needed]:
            yield f"{at(name)}: needs {what}"
    yield from _check_exchange_tls(values, at)
    yield from _check_admin(values, at)
    yield from _check_addresses(values, at)
    yield from _check_peers(values, at("peer"))
    if values["peer"] and values["peer_file"]:
        yield f"{at('peer_file')}: peer names other regions too: give one of the two"
    yield from _check_headers(values, at)
    if values["xds_retry_max_s"] < values["xds_retry_s"]:
        yield f"{at('xds_retry_max_s')}: is less than xds_retry_s, the first wait"
    yield from _check_defaults(values, at)
    if values["plane_store"] and values["upstream"]:
        yield f"{at('plane_store')}: upstream is given too: a relay's log is in its data_dir"
    if values["promote"] and values["upstream"]:
        yield f"{at('promote')}: upstream is given too: a root has none"


def _check_defaults(values: Mapping[str, Any], at: Callable[[str], str]) -> Iterator[str]:
    """Refuse defaults of one node beside a plane, whose rules mean the same on all nodes that have their version."""
    if not str(values["rules"] or "").startswith("plane://"):
        return
    for name, by_itself in (("default_algorithm", "sliding_window"), ("default_on_error", "local")):
        if values[name] != by_itself:
            yield f"{at(name)}: has no place beside a plane ({at('rules')}): say it in the rules, or in rules_overlay"


def _check_workers(values: Mapping[str, Any], at: str) -> Iterator[str]:
    if values["workers"] > 1 and values["origin"] == "memory://":
        yield (
            f"{at}: {values['workers']} processes can't share `memory://`, each would count by itself: "
            "use a Redis origin (--origin redis://host:port), or run one process (--workers 1)"
        )


def _check_exchange_tls(values: Mapping[str, Any], at: Any) -> Iterator[str]:
    names = ("exchange_tls_cert", "exchange_tls_key", "exchange_tls_ca")
    given = [name for name in names if values[name]]
    missing = [name for name in names if not values[name]]
    if given and missing:
        yield f"{at(given[0])}: needs {' and '.join(missing)} beside it: peers show each other certificates"


def _check_admin(values: Mapping[str, Any], at: Any) -> Iterator[str]:
    if values["admin_grpc"] and not values["admin_token_file"] and not values["admin_tls_client_ca"]:
        yield (
            f"{at('admin_grpc')}: needs admin_token_file or admin_tls_client_ca beside it: whoever reaches it could "
            "change any limit, and nobody would know who it was"
        )


def _check_addresses(values: Mapping[str, Any], at: Any) -> Iterator[str]:
    taken: dict[str, str] = {}
    # Where other regions come in nothing listens without peers.
    exchange = ["exchange"] if values["peer"] or values["peer_file"] else []
    for name in ("grpc", "http", "admin", "metrics", "debug", "admin_grpc", *exchange):
        address = values[name]
        if address in taken:
            yield f"{at(name)}: {taken[address]} listens on {address} too: give each its own address"
        if address is not None and not address.endswith(":0"):
            taken.setdefault(address, name)


def _check_peers(values: Mapping[str, Any], at: str) -> Iterator[str]:
    regions = [peer.region for peer in values["peer"]]
    if values["region"] in regions:
        yield f"{at}: {values['region']!r} is this region itself: name only the others"
    for region in sorted({region for region in regions if regions.count(region) > 1}):
        yield f"{at}: {region!r} is given twice"


def _check_headers(values: Mapping[str, Any], at: Any) -> Iterator[str]:
    names = {"ratelimit": "the IETF's field", "ratelimit-policy": "the IETF's field"}
    for name in ("header_limit", "header_remaining", "header_reset", "header_retry_after", "reason_header"):
        header = (values[name] or "").lower()
        if not header:
            continue
        if header in names:
            yield f"{at(name)}: {values[name]!r} is the name of {names[header]} too"
        names.setdefault(header, name)
