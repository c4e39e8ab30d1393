"""Beginning of a stream between two regions: who speaks, to whom, and in which version of the protocol. Pure.

A region's set of others may differ from its peer's for a while, whenever one is added or
removed: each says what its own is, and neither refuses the other for it.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.config.kinds import NAME
from headgate.errors import BadRequest, Misconfigured

MAX_REGIONS: Final = 1_000
"""Most regions that a hello may name. Ten is many; the bound keeps a hello small."""

MAX_SOFTWARE_CHARS: Final = 64
"""Most characters of the software's version, which is only shown."""


class Versions(NamedTuple):
    """The versions of the protocol that a side understands, both included."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}" if self.lowest != self.highest else f"{self.lowest}"


OURS: Final = Versions(1, 2)
"""1: counts; 2: quotas too."""


@dataclass(slots=True)
class Regions:
    """The own region's name and those of its peers, as configured: `peers` is replaced when regions come and go."""

    own: str
    peers: frozenset[str]

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(sorted({self.own, *self.peers}))


class Hello(NamedTuple):
    """First message of a sender."""

    region: str
    to_region: str
    versions: Versions
    regions: tuple[str, ...]
    software: str


class Welcome(NamedTuple):
    """Receiver's answer to a hello."""

    version: int
    region: str
    regions: tuple[str, ...]
    software: str


def check_names(hello: Hello | Welcome) -> None:
    """Names of regions are names, and few: they go into logs and messages. Raises BadRequest, and repeats none."""
    names = [hello.region, *hello.regions]
    if isinstance(hello, Hello):
        names.append(hello.to_region)
    if len(hello.regions) > MAX_REGIONS:
        raise BadRequest(f"a hello with {len(hello.regions)} regions: at most {MAX_REGIONS} are accepted")
    if not all(map(_is_name, names)):
        raise BadRequest(f"a hello with a name of a region that is none: expected {NAME.accepts}")


def _is_name(text: str) -> bool:
    try:
        NAME.parse(text)
    except ValueError:
        return False
    return True


def shown(software: str) -> str:
    """The other side's version of the software, fit for a log."""
    return "".join(letter if letter.isprintable() else "?" for letter in software[:MAX_SOFTWARE_CHARS])


def check_direction(hello: Hello, regions: Regions) -> None:
    """Check that one of our peers speaks, and to us. Raises Misconfigured, with what to change."""
    if hello.to_region != regions.own:
        raise Misconfigured(
            f"this is region {regions.own!r}, and {hello.region!r} means {hello.to_region!r}: "
            f"correct the address of --peer {hello.to_region}=… there, or --region here"
        )
    if hello.region == regions.own:
        raise Misconfigured(
            f"you call yourself {hello.region!r}, which is this region's own name: correct --region on one side"
        )
    if hello.region not in regions.peers:
        raise Misconfigured(
            f"{hello.region!r} is no peer of region {regions.own!r} (its peers: {', '.join(sorted(regions.peers))}): "
            f"correct --region there, or add --peer {hello.region}=ADDR here"
        )


def choose_version(theirs: Versions, ours: Versions) -> int:
    """The highest that both understand. Raises Misconfigured, with both ranges."""
    if theirs.lowest > theirs.highest or theirs.lowest < 1:
        raise BadRequest(f"a hello with versions {theirs.lowest} to {theirs.highest}: expected a range from 1 on")
    chosen = min(theirs.highest, ours.highest)
    if chosen < max(theirs.lowest, ours.lowest):
        raise Misconfigured(
            f"no common version of the exchange: you speak {theirs}, this region {ours}: upgrade the older side"
        )
    return chosen
