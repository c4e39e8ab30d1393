"""Options of Envoy's filter that docs/envoy.md explains: each behaves as it says there."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.matrix import TLS_OF_ENVOY
from tests.support.envoy import Envoy, run_envoy, validate
from tests.support.envoy_config import backend_cluster, backend_listener, header_limit, http_config, route, static
from tests.support.headgate import Answer, serve, write_rules
from tests.support.helm import only, render

RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 2}
- key: tenant
  rate_limit: {unit: year, requests_per_unit: 9}
"""
KUBERNETES = Path(__file__).parents[3] / "examples" / "envoy" / "kubernetes"

Start = Callable[..., AbstractContextManager[Envoy]]


@pytest.fixture(scope="module")
def start_envoy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    rules = write_rules(tmp_path_factory.mktemp("rules"), RULES)
    with serve(rules, "--response-headers") as headgate:

        def start(**fields: Any) -> AbstractContextManager[Envoy]:
            return run_envoy(
                http_config(
                    headgate=[headgate.grpc],
                    enable_x_ratelimit_headers="DRAFT_VERSION_03",
                    failure_mode_deny=True,
                    **fields,
                )
            )

        yield start


def limit(answer: Answer) -> str:
    """Which of the two rules decided, by its number."""
    return answer.headers.get("x-ratelimit-limit", "none").partition(",")[0]


def test_the_most_specific_rate_limits_replace_all_others(start_envoy: Start) -> None:
    both = {"x-user": "specific", "x-tenant": "specific"}
    routes = [
        route("/per-route", limits=[header_limit("tenant")], per_route={"rate_limits": [header_limit("user")]}),
        route("/route", limits=[header_limit("user")]),
    ]
    with start_envoy(routes=routes, rate_limits=[header_limit("tenant")]) as envoy:
        assert limit(envoy.get("/per-route", both)) == "2"
        assert limit(envoy.get("/route", both)) == "9"


def test_a_filter_takes_the_route_s_rate_limits_of_its_own_stage(start_envoy: Start) -> None:
    routes = [route("/", limits=[header_limit("user", stage=1)])]
    with start_envoy(routes=routes) as envoy:
        assert limit(envoy.get("/", {"x-user": "stage"})) == "none"
    with start_envoy(routes=routes, stage=1) as envoy:
        assert limit(envoy.get("/", {"x-user": "stage"})) == "2"


def test_a_descriptor_needs_all_its_entries_unless_they_may_be_absent(start_envoy: Start) -> None:
    optional = {"request_headers": {"header_name": "x-tenant", "descriptor_key": "tenant", "skip_if_absent": True}}
    user = {"request_headers": {"header_name": "x-user", "descriptor_key": "user"}}
    routes = [
        route("/needed", limits=[header_limit("user", "tenant")]),
        route("/optional", limits=[{"actions": [user, optional]}]),
    ]
    with start_envoy(routes=routes) as envoy:
        assert limit(envoy.get("/needed", {"x-user": "entries"})) == "none"
        assert limit(envoy.get("/optional", {"x-user": "entries"})) == "2"


def test_a_cost_that_is_missing_or_no_number_takes_the_descriptor_away(start_envoy: Start) -> None:
    """A caller who may write the header may leave the limit: hence the advice to set it in Envoy."""
    routes = [route("/", per_route={"rate_limits": [header_limit("user", hits_addend={"format": "%REQ(x-cost)%"})]})]
    user = {"x-user": "cost"}
    with start_envoy(routes=routes) as envoy:
        assert limit(envoy.get("/", {**user, "x-cost": "1"})) == "2"
        assert limit(envoy.get("/", user)) == "none"
        assert {limit(envoy.get("/", {**user, "x-cost": cost})) for cost in ("abc", "-1", "99999999999")} == {"none"}


def test_the_status_of_a_denial_can_be_another_one(start_envoy: Start) -> None:
    routes = [route("/", limits=[header_limit("user")])]
    fields = {"rate_limited_status": {"code": 503}, "disable_x_envoy_ratelimited_header": True}
    with start_envoy(routes=routes, **fields) as envoy:
        answers = [envoy.get("/", {"x-user": "status"}) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 503]
        assert "x-envoy-ratelimited" not in answers[-1].headers


@pytest.mark.parametrize(("fields", "status"), [({}, "14"), ({"rate_limited_as_resource_exhausted": True}, "8")])
def test_grpc_callers_are_told_in_their_own_way(start_envoy: Start, fields: dict[str, Any], status: str) -> None:
    headers = {"x-user": f"grpc-{status}", "content-type": "application/grpc"}
    with start_envoy(routes=[route("/", limits=[header_limit("user")])], **fields) as envoy:
        denied = [envoy.get("/", headers) for _ in range(3)][-1]
        assert (denied.status, denied.headers["grpc-status"]) == (200, status)


def test_a_filter_that_does_not_enforce_lets_everything_pass(start_envoy: Start) -> None:
    not_enforced = {"filter_enforced": {"default_value": {"numerator": 0}}}
    with start_envoy(routes=[route("/", limits=[header_limit("user")])], **not_enforced) as envoy:
        assert envoy.statuses("/", {"x-user": "watched"}, 4) == [200] * 4
        assert envoy.counters("over_limit")["cluster.backend.ratelimit.over_limit"] == 2


def manifest_of(source: str) -> dict[str, Any]:
    """Of an example, or of the chart."""
    if source.endswith(".yaml"):
        example: dict[str, Any] = yaml.safe_load((KUBERNETES / source).read_text())
        return example
    kind = {"istio": "EnvoyFilter", "envoyGateway": "EnvoyPatchPolicy"}[source]
    tls = {"transportSocket": TLS_OF_ENVOY} if source == "envoyGateway" else {}
    return only(render({source: {"enabled": True, **tls}}), kind)


@pytest.mark.parametrize("source", [*sorted(path.name for path in KUBERNETES.glob("*.yaml")), "istio", "envoyGateway"])
def test_what_is_added_to_envoy_on_kubernetes_is_accepted(source: str, tmp_path: Path) -> None:
    """The patches are put where the control plane would put them, and Envoy is asked."""
    spec = manifest_of(source)["spec"]
    if "configPatches" in spec:
        filter_, cluster, host = [patch["patch"]["value"] for patch in spec["configPatches"]]
        limits = host["rate_limits"]
    else:
        cluster, filter_, limits = [patch["operation"]["value"] for patch in spec["jsonPatches"]]
    config = http_config(routes=[route("/", limits=limits)], headgate=["127.0.0.1:1"])
    front = config["static_resources"]["listeners"][0]
    manager = front["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"][0] = filter_
    complete = tmp_path / "envoy.yaml"
    complete.write_text(yaml.safe_dump(static([front, backend_listener()], [backend_cluster(), cluster])))
    done = validate(complete, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        cluster["name"] == filter_["typed_config"]["rate_limit_service"]["grpc_service"]["envoy_grpc"]["cluster_name"]
    )
