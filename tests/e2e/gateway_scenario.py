"""What a user of Envoy Gateway sees with Headgate as its rate-limit service: real Envoys in front, a real Redis behind.

Run by test_gateway.py, in a namespace:

python -m tests.e2e.gateway_scenario PROGRAM DIRECTORY
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.ads_observer import AdsObserver
from tests.support.envoy_gateway import XDS_ADDRESS, EnvoyGateway, limit
from tests.support.headgate import RATELIMIT, Headgate, http_request, start
from tests.support.http_backend import HttpBackend
from tests.support.prober import Prober
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

GATEWAYS = {"one": 8888, "two": 8889}
RESTARTS = 5
IN_FORCE_S = 1.0
"""From when Envoy Gateway has sent an edited policy until a request meets it."""


@dataclass(frozen=True)
class Requests:
    """Requests on a route, of which so many pass, and then none."""

    expected: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    method: str = "GET"


ANY = Requests()


def header(name: str, value: str) -> dict[str, Any]:
    return {"headers": [{"name": name, "value": value}]}


def distinct(name: str) -> list[dict[str, str]]:
    return [{"name": name, "type": "Distinct"}]


def from_address(address: str) -> dict[str, str]:
    return {"X-Forwarded-For": address}


SELECTORS = [
    limit(3, "Hour", **header("x-plan", "free")),
    limit(2, "Hour", headers=distinct("x-user")),
    limit(0, "Hour", **header("x-banned", "yes")),
    limit(4, "Hour", sourceCIDR={"value": "10.0.0.0/8"}),
    limit(1, "Hour", sourceCIDR={"value": "192.168.0.0/16", "type": "Distinct"}),
    limit(5, "Hour", methods=[{"value": "POST"}]),
    limit(6, "Hour", path={"type": "PathPrefix", "value": "/selectors/a"}),
    limit(2, "Hour", queryParams=[{"name": "key", "value": "x"}]),
    limit(1, "Hour", queryParams=distinct("tenant")),
    limit(2, "Hour", **header("x-both", "yes"), methods=[{"value": "PUT"}]),
]
"""Each of which asks for something that no request for another one has."""
LIMITED = [
    Requests(3, {"x-plan": "free"}),
    Requests(2, {"x-user": "ada"}),
    Requests(2, {"x-user": "bob"}),
    Requests(0, {"x-banned": "yes"}),
    Requests(4, from_address("10.1.2.3")),
    Requests(0, from_address("10.9.9.9")),
    Requests(1, from_address("192.168.0.7")),
    Requests(1, from_address("192.168.0.8")),
    Requests(5, method="POST"),
    Requests(6, path="/a"),
    Requests(2, path="?key=x"),
    Requests(1, path="?tenant=a"),
    Requests(1, path="?tenant=b"),
    Requests(2, {"x-both": "yes"}, method="PUT"),
]
FREE = [
    ANY,
    Requests(headers={"x-plan": "gold"}),
    Requests(headers=from_address("11.0.0.1")),
    Requests(path="/b"),
    Requests(path="?key=y"),
    Requests(headers={"x-both": "yes"}),
    Requests(method="PUT"),
]


def status(gateway: str, route: str, request: Requests = ANY) -> int:
    address = f"127.0.0.1:{GATEWAYS[gateway]}"
    return http_request(address, request.method, f"/{route}{request.path}", headers=request.headers).status


def statuses(gateway: str, route: str, request: Requests, count: int) -> list[int]:
    return [status(gateway, route, request) for _ in range(count)]


def metric(name: str) -> float:
    """A metric of Headgate's, from the port that Envoy Gateway has Prometheus scrape."""
    page = http_request("127.0.0.1:19002", "GET", "/metrics").body.decode()
    (found,) = [s.value for family in text_string_to_metric_families(page) for s in family.samples if s.name == name]
    return float(found)


@contextmanager
def serving(gateway: EnvoyGateway, data_dir: Path, redis: RedisServer) -> Iterator[Headgate]:
    """The service as Envoy Gateway's Deployment gives it its environment."""
    certs = gateway.certs
    environ = {
        "RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_IGNOREDOTFILES": "true",
        "RUNTIME_WATCH_ROOT": "false", "LOG_LEVEL": "info", "USE_STATSD": "false", "CONFIG_TYPE": "GRPC_XDS_SOTW",
        "CONFIG_GRPC_XDS_SERVER_URL": XDS_ADDRESS, "CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit",
        "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true", "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "envoy-gateway",
        "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": f"{certs}/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": f"{certs}/tls.key",
        "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": f"{certs}/ca.crt",
        "GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": f"{certs}/tls.crt",
        "GRPC_SERVER_TLS_KEY": f"{certs}/tls.key", "GRPC_SERVER_TLS_CA_CERT": f"{certs}/ca.crt",
        "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
        "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": f"127.0.0.1:{redis.port}",
        "USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": ":19002",
        "HEADGATE_DATA_DIR": str(data_dir), "HEADGATE_XDS_RETRY_S": "0.05", "HEADGATE_XDS_RETRY_MAX_S": "0.1",
        "HEADGATE_ORIGIN_DEADLINE_MS": "1000", "HEADGATE_DRAIN_S": "0",
    }  # fmt: skip
    with start(environ=environ, program=RATELIMIT) as headgate:
        yield headgate.wait_ready()


def each_selector_is_limited_exactly() -> None:
    for request in LIMITED:
        wanted = [200] * request.expected + [429] * 3
        assert statuses("one", "selectors", request, len(wanted)) == wanted, request
    for request in FREE:
        assert statuses("one", "selectors", request, 10) == [200] * 10, request


def a_shared_rule_counts_over_all_its_routes() -> None:
    asked = [status(gateway, f"shared-{gateway}") for gateway in tuple(GATEWAYS) * 3]
    assert asked == [200] * 3 + [429] * 3


def an_edited_policy_is_in_force_within_a_second_of_its_push(gateway: EnvoyGateway, observer: AdsObserver) -> None:
    """The limit alone changes, so Envoy's own configuration does not: what is measured is the way through Headgate."""
    assert statuses("one", "edited", ANY, 3) == [200] * 3
    with Prober(lambda: status("one", "edited")) as prober:
        edited_s = time.monotonic()
        gateway.set_policy("edited", [limit(1, "Hour")])
        wait_until(lambda: prober.first_s(429) > 0, "the edited policy to be in force")
        wait_until(lambda: observer.pushed_s("edited", 1) > 0, "its push")
    pushed_s, denied_s = observer.pushed_s("edited", 1), prober.first_s(429)
    said = f"sent after {pushed_s - edited_s:.3f} s, in force {denied_s - pushed_s:.3f} s later"
    sys.stdout.write(f"an edited policy: {said}\n")
    assert denied_s - pushed_s < IN_FORCE_S, said


def a_deleted_policy_limits_nobody(gateway: EnvoyGateway) -> None:
    assert status("one", "edited") == 429
    gateway.remove("policy-edited")
    wait_until(lambda: status("one", "edited") == 200, "the limit to be lifted")
    assert statuses("one", "edited", ANY, 10) == [200] * 10


def a_gateway_that_restarts_lets_nobody_through(gateway: EnvoyGateway) -> None:
    """Envoys go on serving meanwhile; the first pushes of a gateway that restarts lack domains."""
    for name in GATEWAYS:
        assert statuses(name, f"spent-{name}", ANY, 2) == [200, 429]
    with ExitStack() as stack:
        probers = [stack.enter_context(Prober(partial(status, name, f"spent-{name}"))) for name in GATEWAYS]
        for number in range(RESTARTS):
            streams = metric("headgate_xds_streams_total")
            gateway.kill()
            gateway.start()
            wait_until(partial(_is_whole_again, streams), f"restart {number}")
    for prober in probers:
        assert prober.counts[429] > 100
        assert prober.counts.total() == prober.counts[429], prober.counts


def _is_whole_again(streams: float) -> bool:
    """Say whether a new stream was answered, and has shown everything."""
    is_new = metric("headgate_xds_streams_total") > streams
    return is_new and metric("headgate_xds_connected") == 1 and metric("headgate_xds_held_resources") == 0


def the_last_good_rules_outlive_a_restart_without_a_gateway(gateway: EnvoyGateway, headgate: Headgate) -> None:
    headgate.wait_for_event("serving_last_good_rules")
    assert (metric("headgate_rules_limits"), metric("headgate_xds_connected")) == (len(GATEWAYS), 0)
    for name in GATEWAYS:
        wait_until(partial(_is_limited, name), "Envoy to reach the process again")
        assert statuses(name, f"spent-{name}", ANY, 10) == [429] * 10
    gateway.start()
    wait_until(lambda: metric("headgate_rules_in_sync") == 1, "the gateway")
    assert status("one", "spent-one") == 429


def _is_limited(name: str) -> bool:
    """Say whether Envoy has an answer; without one the request fails, as the gateway is set to."""
    found = status(name, f"spent-{name}")
    assert found in (429, 500), found
    return found == 429


def prepare(gateway: EnvoyGateway, backend_port: int) -> None:
    """Write gateways, routes and policies before it starts; few, because it checks all of them at each edit."""
    gateway.add_backend(backend_port)
    for name, port in GATEWAYS.items():
        gateway.add_gateway(name, port)
        gateway.add_route(f"spent-{name}", name)
        gateway.set_policy(f"spent-{name}", [limit(1, "Hour")])
        gateway.add_route(f"shared-{name}", name)
    gateway.set_policy("shared", [{**limit(3, "Hour"), "shared": True}], *[f"shared-{name}" for name in GATEWAYS])
    gateway.add_route("selectors", "one")
    gateway.set_policy("selectors", SELECTORS)
    gateway.add_route("edited", "one")
    gateway.set_policy("edited", [limit(1_000_000, "Hour")])


def forget_what_was_tried(gateway: EnvoyGateway) -> None:
    for name in ("policy-selectors", "route-selectors", "policy-shared", "route-shared-one", "route-shared-two"):
        gateway.remove(name)
    wait_until(lambda: metric("headgate_rules_limits") == len(GATEWAYS) + 1, "what was removed to be gone")


def main(program: Path, directory: Path) -> None:
    gateway = EnvoyGateway(program, directory / "gateway")
    data_dir = directory / "data"
    with HttpBackend() as backend, RedisServer() as redis:
        prepare(gateway, backend.port)
        # Before Envoy Gateway: it takes port 8081 where nobody has it, and goes on where somebody does.
        with serving(gateway, data_dir, redis) as headgate, gateway.running():
            rules = len(SELECTORS) + len(GATEWAYS) + 2
            wait_until(lambda: metric("headgate_rules_limits") == rules, "all rules")
            wait_until(_envoys_answer, "Envoys to answer")
            each_selector_is_limited_exactly()
            a_shared_rule_counts_over_all_its_routes()
            forget_what_was_tried(gateway)
            with AdsObserver(XDS_ADDRESS, gateway.certs) as observer:
                an_edited_policy_is_in_force_within_a_second_of_its_push(gateway, observer)
            a_deleted_policy_limits_nobody(gateway)
            a_gateway_that_restarts_lets_nobody_through(gateway)
            gateway.kill()
            headgate.stop()
            with serving(gateway, data_dir, redis) as another:
                the_last_good_rules_outlive_a_restart_without_a_gateway(gateway, another)


def _envoys_answer() -> bool:
    with suppress(OSError):
        return [status("one", "edited"), status("two", "nowhere")] == [200, 404]
    return False


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
