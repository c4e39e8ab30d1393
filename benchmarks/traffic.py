"""Kinds of traffic, and the rules that they meet: payloads that are made before anything is measured."""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

WARM_KEYS = 1_000
USERS = 200_000
ZIPF_EXPONENT = 1.0
"""How unevenly users come: the n-th most frequent one 1/n as often as the first."""

RULES = """
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: denied
    rate_limit: {unit: day, requests_per_unit: 1}
"""

Traffic = Callable[[int], Iterator[bytes]]
"""So many payloads, other ones (or the next ones) at each call."""


def request(*keys: tuple[str, str], domain: str = "bench") -> bytes:
    message = RateLimitRequest(domain=domain)
    for key, value in keys:
        message.descriptors.append(RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key=key, value=value)]))
    return message.SerializeToString()


def _cycling(payloads: list[bytes]) -> Traffic:
    endless = itertools.cycle(payloads)
    return lambda count: itertools.islice(endless, count)


def warm(descriptors: int = 1, keys: int = WARM_KEYS) -> Traffic:
    """The same keys again and again, so many of them in each request."""

    def user(number: int) -> tuple[str, str]:
        return "user", f"warm-{number % keys}"

    return _cycling([request(*[user(number + n * 7) for n in range(descriptors)]) for number in range(keys)])


def denied() -> Traffic:
    """A thousand keys that are over their limit."""
    return _cycling([request(("denied", f"mallory-{number}")) for number in range(WARM_KEYS)])


def new() -> Traffic:
    """No key twice."""
    numbers = itertools.count()
    return lambda count: iter([request(("user", f"new-{number:09}")) for number in itertools.islice(numbers, count)])


@cache
def _user(number: int) -> bytes:
    return request(("user", f"zipf-{number:06}"))


def zipf(seed: int = 1) -> Traffic:
    """Users as they come in life: a few often, most of them rarely."""
    chooser = random.Random(seed)
    weights = list(itertools.accumulate(1 / rank**ZIPF_EXPONENT for rank in range(1, USERS + 1)))
    return lambda count: map(_user, chooser.choices(range(USERS), cum_weights=weights, k=count))


NESTED_RULES = """
domain: bench
descriptors:
  - key: tenant
    value: "acme-*"
    descriptors:
      - key: path
        value: "/api/*"
        descriptors:
          - key: user
            rate_limit: {unit: hour, requests_per_unit: 4000000000}
"""

EXACT_RULES = """
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000, precision: 0}
"""


def _steps(*steps: tuple[str, str], domain: str = "bench") -> bytes:
    """A request with one descriptor of these entries."""
    entries = [RateLimitDescriptor.Entry(key=key, value=value) for key, value in steps]
    return RateLimitRequest(domain=domain, descriptors=[RateLimitDescriptor(entries=entries)]).SerializeToString()


def nested() -> Traffic:
    """Three levels, two of them wildcards; a thousand users."""
    return _cycling(
        [
            _steps(("tenant", f"acme-{n % 7}"), ("path", f"/api/{n % 13}"), ("user", f"warm-{n}"))
            for n in range(WARM_KEYS)
        ]
    )


ROUTE = "httproute/default/shop/rule/0/match/0/*"
GATEWAY_RULES = f"""
domain: default/eg/http
descriptors:
  - key: {ROUTE}
    value: {ROUTE}
    descriptors:
      - key: masked_remote_address
        value: 10.0.0.0/8
        descriptors:
          - key: remote_address
            rate_limit: {{unit: hour, requests_per_unit: 4000000000}}
"""
"""A limit of Envoy Gateway's for each address of a network, on a route without a host name."""
THREE_RULES = """
domain: three
descriptors:
  - key: path
    value: shop
    descriptors:
      - key: network
        value: inner
        descriptors:
          - key: user
            rate_limit: {unit: hour, requests_per_unit: 4000000000}
"""
"""The same with plain keys."""


def gateway(numbers: Iterable[int]) -> Iterator[bytes]:
    """Requests as Envoy Gateway has Envoy make them."""
    for n in numbers:
        address = f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"
        steps = ((ROUTE, ROUTE), ("masked_remote_address", "10.0.0.0/8"), ("remote_address", address))
        yield _steps(*steps, domain="default/eg/http")


def three(numbers: Iterable[int]) -> Iterator[bytes]:
    """As many entries, with plain keys."""
    for n in numbers:
        yield _steps(("path", "shop"), ("network", "inner"), ("user", f"new-{n:09}"), domain="three")


def _kept(make: Callable[[Iterable[int]], Iterator[bytes]]) -> Traffic:
    return _cycling(list(make(range(WARM_KEYS))))


def _unseen(make: Callable[[Iterable[int]], Iterator[bytes]]) -> Traffic:
    numbers = itertools.count()
    return lambda count: iter(list(make(itertools.islice(numbers, count))))


def many_rules(count: int) -> str:
    """As many rules, each for one user: `warm-0` and on."""
    rule = "  - {{key: user, value: warm-{n}, rate_limit: {{unit: hour, requests_per_unit: 4000000000}}}}\n"
    return "domain: bench\ndescriptors:\n" + "".join([rule.format(n=n) for n in range(count)])


KINDS: dict[str, Callable[[], Traffic]] = {
    "one": warm,
    "five": lambda: warm(5),
    "denied": denied,
    "new": new,
    "zipf": zipf,
}

GATEWAY_KINDS: dict[str, Callable[[], Traffic]] = {
    "three": lambda: _kept(three),
    "gateway": lambda: _kept(gateway),
    "three-new": lambda: _unseen(three),
    "gateway-new": lambda: _unseen(gateway),
}
"""Envoy Gateway's descriptors, and as many entries with plain keys: seen before, and never seen."""
