"""Envoy configurations for tests, as plain mappings: a front listener that asks Headgate, a backend behind it.

The backend is a second listener, because Envoy makes no rate-limit call for a route
that answers directly. It gives back the request's `x-reply-cost` as `x-cost`, for costs
that are known only after the response.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.envoy import BACKEND_SOCKET, DIRECTORY
from tests.support.waiting import PATIENCE_S

Json = dict[str, Any]

TIMEOUT_S = PATIENCE_S
"""For a decision. Envoy's default of 20 ms is for production: on a busy machine it would let requests pass."""

_TYPES = "type.googleapis.com/envoy.extensions"
HTTP_FILTER = f"{_TYPES}.filters.http.ratelimit.v3.RateLimit"
PER_ROUTE = f"{_TYPES}.filters.http.ratelimit.v3.RateLimitPerRoute"


def header_limit(*names: str, **fields: Any) -> Json:
    """One descriptor with an entry per name: `user` from the header `x-user`, and so on."""
    actions = [{"request_headers": {"header_name": f"x-{name}", "descriptor_key": name}} for name in names]
    return {"actions": actions, **fields}


def generic_limit(key: str, value: str, **fields: Any) -> Json:
    return {"actions": [{"generic_key": {"descriptor_key": key, "descriptor_value": value}}], **fields}


def route(
    prefix: str, *, limits: Sequence[Json] = (), per_route: Json | None = None, metadata: Json | None = None
) -> Json:
    """To the backend; `limits` are the route's, `per_route` is the filter's configuration for it."""
    built: Json = {"match": {"prefix": prefix}, "route": {"cluster": "backend", "rate_limits": list(limits)}}
    if per_route is not None:
        built["typed_per_filter_config"] = {"envoy.filters.http.ratelimit": {"@type": PER_ROUTE, **per_route}}
    if metadata is not None:
        built["metadata"] = {"filter_metadata": metadata}
    return built


def http_config(
    *,
    routes: Sequence[Json],
    headgate: Sequence[str],
    domain: str = "edge",
    before: Sequence[Json] = (),
    cluster: Mapping[str, Any] | None = None,
    response_headers: Mapping[str, str] | None = None,
    **filter_fields: Any,
) -> Json:
    """`filter_fields` go into the rate-limit filter, `before` are filters in front of it."""
    rate_limit = {
        "@type": HTTP_FILTER,
        "domain": domain,
        "timeout": f"{TIMEOUT_S}s",
        "rate_limit_service": grpc_service(),
        **filter_fields,
    }
    filters = [*before, {"name": "envoy.filters.http.ratelimit", "typed_config": rate_limit}]
    front_routes = {
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": list(routes)}],
        "response_headers_to_add": [_header(name, value) for name, value in (response_headers or {}).items()],
    }
    front = _http_listener("front", _tcp("127.0.0.1:0"), front_routes, filters)
    return static([front, backend_listener()], [backend_cluster(), headgate_cluster(headgate, **(cluster or {}))])


def network_config(*, headgate: Sequence[str], descriptors: Sequence[Json], **filter_fields: Any) -> Json:
    """Connections are limited, not requests."""
    rate_limit = {
        "@type": f"{_TYPES}.filters.network.ratelimit.v3.RateLimit",
        "stat_prefix": "front",
        "domain": "edge",
        "timeout": f"{TIMEOUT_S}s",
        "descriptors": list(descriptors),
        "rate_limit_service": grpc_service(),
        **filter_fields,
    }
    proxy = {"@type": f"{_TYPES}.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "front", "cluster": "backend"}
    filters = [
        {"name": "envoy.filters.network.ratelimit", "typed_config": rate_limit},
        {"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy},
    ]
    front = {"name": "front", "address": _tcp("127.0.0.1:0"), "filter_chains": [{"filters": filters}]}
    return static([front, backend_listener()], [backend_cluster(), headgate_cluster(headgate)])


def static(listeners: Sequence[Json], clusters: Sequence[Json]) -> Json:
    return {"static_resources": {"listeners": list(listeners), "clusters": list(clusters)}}


def grpc_service() -> Json:
    return {"transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "headgate"}}}


def headgate_cluster(addresses: Sequence[str], **fields: Any) -> Json:
    """One endpoint per address, `host:port` or `unix:/path`; HTTP/2, as gRPC needs it."""
    options = {
        "@type": f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    return {
        "name": "headgate",
        "type": "STATIC",
        "connect_timeout": f"{TIMEOUT_S}s",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
        "load_assignment": _endpoints("headgate", [_address(address) for address in addresses]),
        **fields,
    }


def health_checked(interval_s: float, timeout_s: float) -> Json:
    """Cluster fields: gRPC health as we recommend it, at a given pace."""
    check = {
        "interval": f"{interval_s}s",
        # Otherwise an idle cluster is looked at once a minute only.
        "no_traffic_interval": f"{interval_s}s",
        "no_traffic_healthy_interval": f"{interval_s}s",
        "unhealthy_interval": f"{interval_s}s",
        "timeout": f"{timeout_s}s",
        "healthy_threshold": 1,
        "unhealthy_threshold": 1,
        "grpc_health_check": {"service_name": "ratelimit"},
    }
    return {"health_checks": [check]}


def backend_listener() -> Json:
    reply = {
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_string": "hello\n"}},
        "response_headers_to_add": [_header("x-cost", "%REQ(x-reply-cost)%")],
    }
    routes = {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [reply]}]}
    return _http_listener("backend", _pipe(f"{DIRECTORY}/{BACKEND_SOCKET}"), routes, [])


def backend_cluster() -> Json:
    return {
        "name": "backend",
        "type": "STATIC",
        "load_assignment": _endpoints("backend", [_pipe(f"{DIRECTORY}/{BACKEND_SOCKET}")]),
    }


def _http_listener(name: str, address: Json, routes: Json, filters: Sequence[Json]) -> Json:
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"}}
    manager = {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": {"name": name, **routes},
        "http_filters": [*filters, router],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {"name": name, "address": address, "filter_chains": [chain]}


def _endpoints(name: str, addresses: Sequence[Json]) -> Json:
    endpoints = [{"endpoint": {"address": address}} for address in addresses]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}


def _address(address: str) -> Json:
    return _pipe(address.removeprefix("unix:")) if address.startswith("unix:") else _tcp(address)


def _tcp(address: str) -> Json:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


def _pipe(path: str) -> Json:
    return {"pipe": {"path": path}}


def _header(key: str, value: str) -> Json:
    return {"header": {"key": key, "value": value}}
