"""Metrics of the exchange between regions. One series per peer: there are as many as are configured."""

from collections.abc import Callable, Iterable, Mapping

from headgate.clock import Clock
from headgate.exchange.peer_list import PeerList
from headgate.exchange.peers import PeerStatus
from headgate.telemetry.metrics import Metrics

Peers = Mapping[str, PeerStatus]
PerPeer = Callable[[], Iterable[tuple[float, Mapping[str, str]]]]


def register(
    metrics: Metrics,
    peers: Peers,
    sent_bytes: Callable[[str], int],
    received_bytes: Callable[[str], int],
    slowed_s: Callable[[str], float],
    clock: Clock,
) -> None:
    """Export the state of every peer, and what was exchanged with it. Bytes are those of batches, by peer; `slowed_s`
    says for how long its batches waited for their turn.
    """
    _register_states(metrics, peers, clock)
    for name, text, value in (
        ("sent_batches", "Batches that the peer has acknowledged.", lambda s: s.sent_batches),
        ("sent_entries", "Components in them.", lambda s: s.sent_entries),
        ("received_batches", "Batches of the peer that were taken in.", lambda s: s.received_batches),
        ("received_entries", "Components in them.", lambda s: s.received_entries),
        ("refused_entries", "Components of the peer that made no sense.", lambda s: s.refused_entries),
        ("unshared_entries", "Components of keys that the rules here don't share.", lambda s: s.unshared_entries),
        ("unasked_entries", "Own components brought back without being asked for.", lambda s: s.unasked_entries),
        ("over_budget", "Batches of the peer with more that is new than it has room for.", lambda s: s.over_budget),
        ("failures", "Batches that the peer did not acknowledge.", lambda s: s.failures),
        ("sent_bytes", "Bytes of batches that the peer has acknowledged.", lambda s: sent_bytes(s.region)),
        ("slowed_seconds", "Seconds that batches of the peer waited: too much at once.", lambda s: slowed_s(s.region)),
        ("received_bytes", "Bytes of batches that the peer has sent.", lambda s: received_bytes(s.region)),
    ):
        metrics.labelled_counter(f"headgate_peer_{name}", text, ("peer",), _per_peer(peers, value))


def _register_states(metrics: Metrics, peers: Peers, clock: Clock) -> None:
    def seconds_since(at_ms: int) -> int:
        return max(0, clock.now_ms() - at_ms) // 1000 if at_ms else -1

    for name, text, value in (
        ("connected", "1 while the peer acknowledges batches.", lambda s: int(s.is_connected(clock.now_ms()))),
        ("serving", "1 while this process sends to the peer; another one of the region may.", lambda s: int(s.serving)),
        ("filling", "1 while this region waits for a peer to send again what it lost.", lambda s: int(s.filling)),
        ("cut_off", "1 while an operator has cut the region off.", lambda s: int(s.cut_off)),
        ("backlog", "Changes that the peer has not acknowledged.", lambda s: s.backlog),
        ("lag_seconds", "How old the peer's knowledge of this region is; -1 unknown.", lambda s: _seconds(s.lag_ms)),
        ("clock_ahead_seconds", "Seconds by which the peer's clock was ahead of ours.", lambda s: s.skew_ms / 1000),
        ("clock_skewed", "1 while the peer's clock is off by more than it should be.", lambda s: int(s.skewed)),
        (
            "seconds_since_publish",
            "Since counts were last acknowledged by the peer; -1 never.",
            lambda s: seconds_since(s.published_ms),
        ),
        (
            "seconds_since_import",
            "Since the peer last sent something; -1 never.",
            lambda s: seconds_since(s.imported_ms),
        ),
    ):
        metrics.labelled_gauge(f"headgate_peer_{name}", text, ("peer",), _per_peer(peers, value))


def _per_peer(peers: Peers, value: Callable[[PeerStatus], float]) -> PerPeer:
    return lambda: [(value(status), {"peer": status.region}) for status in peers.values()]


def _seconds(lag_ms: int | None) -> float:
    return -1 if lag_ms is None else lag_ms / 1000


def register_peer_file(metrics: Metrics, peers: PeerList) -> None:
    """Export whether the peers that are followed are those of their file; nothing where they were given once."""
    if peers.is_followed:
        metrics.gauge(
            "headgate_peer_file_in_force",
            "1 while the peers in force are those that the peer file has; 0 while it can't be used.",
            lambda: int(not peers.error),
        )
