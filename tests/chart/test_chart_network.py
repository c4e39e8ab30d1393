"""Nothing that the values ask for is cut off by the chart's own policy: it is derived, or refused until it is said."""

from typing import Any

import pytest
from headgate.origin.redis_origin.url import parse_redis_url

from tests.chart.matrix import PROMETHEUS
from tests.support.helm import HelmError, Manifest, merged, only, render


def egress_ports(manifests: list[Manifest], name: str = "headgate") -> set[int]:
    rules = only(manifests, "NetworkPolicy", name)["spec"]["egress"]
    return {port["port"] for rule in rules for port in rule["ports"]} - {53}


@pytest.mark.parametrize(
    "url",
    [
        "redis://redis",
        "redis://redis:6380",
        "redis://a:6380,b:6381,c/3",
        "redis://[2001:db8::1]:7000,[2001:db8::2]/0",
        "rediss://redis:6390/0?verify=chain&ca=/etc/ssl/10:99/ca.crt",
        "redis+cluster://node-0:7000,node-1:7001",
        "redis://me@redis:6400?password_file=/run/a,b:1",
    ],
)
def test_every_port_in_the_url_is_let_out_and_no_other(url: str) -> None:
    """The ports that the server's own reader finds, defaults included."""
    expected = {address.port for address in parse_redis_url(url).addresses}
    assert egress_ports(render({"origin": {"url": url}})) == expected
    more = render({"origin": {"url": url}, "networkPolicy": {"redisPorts": [7777]}})
    assert egress_ports(more) == expected | {7777}


def test_the_exchangers_have_the_same_ports() -> None:
    exchange = {"mode": "separate", "peers": {"us": "h:8082"}, "insecure": True}
    manifests = render({"origin": {"url": "redis://redis:6380"}, "exchange": exchange})
    assert egress_ports(manifests, "headgate-exchange") == {6380, 8082}


def test_sentinels_ports_are_let_out_beside_the_servers() -> None:
    origin = {"url": "redis+sentinel://s-0,s-1:26380/limits"}
    manifests = render({"origin": origin, "networkPolicy": {"redisPorts": [6379, 6380]}})
    assert egress_ports(manifests) == {26379, 26380, 6379, 6380}


def test_the_server_that_rules_come_from_is_reached() -> None:
    assert egress_ports(render({"rulesFrom": "xds://control:18002"})) == {18002}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"origin": {"existingSecret": {"name": "origin"}}},
            "networkPolicy.redisPorts: is empty, and the URL is in a Secret (origin.existingSecret)",
        ),
        (
            {"origin": {"url": "redis+sentinel://s-0/limits"}},
            "networkPolicy.redisPorts: is empty, and origin.url names the Sentinels alone",
        ),
        (
            {"serviceMonitor": {"enabled": True}},
            "networkPolicy.operators: is empty, so Prometheus in another namespace can't reach port 9090",
        ),
    ],
)
def test_what_cannot_be_known_must_be_said(values: dict[str, Any], said: str) -> None:
    with pytest.raises(HelmError) as refused:
        render(values)
    assert said in str(refused.value)
    assert render(merged(values, {"networkPolicy": {"enabled": False}})), "there is nothing that could be cut off"
    assert render(merged(values, {"networkPolicy": {"redisPorts": [6379], "operators": PROMETHEUS}}))


def test_prometheus_is_let_in_where_it_is_named() -> None:
    manifests = render({"serviceMonitor": {"enabled": True}, "networkPolicy": {"operators": PROMETHEUS}})
    rules = only(manifests, "NetworkPolicy")["spec"]["ingress"]
    (admin,) = [rule for rule in rules if {"protocol": "TCP", "port": 9090} in rule["ports"]]
    assert admin["from"] == PROMETHEUS


@pytest.mark.parametrize("port", ["grpc=8080", "http=9090", "keys=8081"])
def test_two_listeners_at_one_port_are_refused_however_it_is_given(port: str) -> None:
    """A number of --set is of another type than the same one in values.yaml."""
    with pytest.raises(HelmError, match="ports: each must be another one"):
        render(more=["--set", f"ports.{port}"])
    assert render(more=["--set", "ports.grpc=9999"])
