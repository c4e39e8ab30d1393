"""Metrics of the exchange between regions. One series per peer: there are as many as are configured."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from headgate.clock import Clock
from headgate.exchange.peers import PeerStatus
from headgate.exchange.quota_keeper import QuotaKeeper
from headgate.region.active import ActiveRegions
from headgate.runtime.regions import RegionExchange
from headgate.telemetry.metrics import Metrics

CELL_ALARMS: Final = (1.5, 3.0)
"""How many times a limit of scope `cell` all regions together may admit, when it is time to say so, and to shout."""

PerPeer = Callable[[], Iterable[tuple[float, Mapping[str, str]]]]


def register_active(metrics: Metrics, active: ActiveRegions) -> None:
    """How many regions share limits, as a node of any of them knows."""
    metrics.gauge("headgate_regions_active", "Regions that were heard lately, this one included.", lambda: active.count)
    metrics.gauge(
        "headgate_regions_configured", "Regions that there are, this one included.", lambda: active.configured
    )
    metrics.labelled_gauge(
        "headgate_cell_scope_exceeded",
        "1 while limits of scope cell may be exceeded this many times, because regions do not hear each other.",
        ("times",),
        lambda: [(int(active.factor >= times), {"times": f"{times:g}"}) for times in CELL_ALARMS],
    )


def register_exchange(metrics: Metrics, exchange: RegionExchange, clock: Clock) -> None:
    """What an exchanger has done, and how its peers are doing."""
    peers = exchange.exchanger.peers

    def per_peer(value: Callable[[PeerStatus], float]) -> PerPeer:
        return lambda: [(value(status), {"peer": status.region}) for status in peers.values()]

    def seconds_since(at_ms: int) -> int:
        return max(0, clock.now_ms() - at_ms) // 1000 if at_ms else -1

    for name, text, value in (
        ("connected", "1 while the peer acknowledges what it is sent.", lambda s: int(s.is_connected(clock.now_ms()))),
        ("serving", "1 while this process sends to the peer; another one of the region may.", lambda s: int(s.serving)),
        ("filling", "1 while the peer is asked for what this region has lost.", lambda s: int(s.filling)),
        ("backlog", "Changes that the peer has not acknowledged.", lambda s: s.backlog),
        ("lag_seconds", "How old the peer's knowledge of this region is; -1 unknown.", lambda s: _seconds(s.lag_ms)),
        ("clock_ahead_seconds", "How far the peer's time was ahead of ours.", lambda s: s.skew_ms / 1000),
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
        metrics.labelled_gauge(f"headgate_peer_{name}", text, ("peer",), per_peer(value))
    for name, text, value in (
        ("sent_batches", "Batches that the peer has acknowledged.", lambda s: s.sent_batches),
        ("sent_entries", "Components in them.", lambda s: s.sent_entries),
        ("received_batches", "Batches of the peer that were taken in.", lambda s: s.received_batches),
        ("received_entries", "Components in them.", lambda s: s.received_entries),
        ("refused_entries", "Components of the peer that made no sense.", lambda s: s.refused_entries),
        ("failures", "Batches that the peer did not acknowledge.", lambda s: s.failures),
    ):
        metrics.labelled_counter(f"headgate_peer_{name}", text, ("peer",), per_peer(value))
    for name, text, size in (
        ("sent_bytes", "Bytes of batches that the peer has acknowledged.", exchange.sent_bytes),
        ("received_bytes", "Bytes of batches that the peer has sent.", exchange.received_bytes),
    ):
        metrics.labelled_counter(f"headgate_peer_{name}", text, ("peer",), per_peer(_of_region(size)))
    register_quotas(metrics, exchange.exchanger.quotas)


def register_quotas(metrics: Metrics, quotas: QuotaKeeper) -> None:
    """What this process has done for its region's slices. No series per key: GET /regions names those that move."""
    for name, text, gauge in (
        ("keeper", "1 while this process keeps the region's quota slices; another one may.", lambda: quotas.is_keeper),
        ("by_slice", "1 while the region goes by its slices, 0 while by its floors.", lambda: quotas.goes_by_slice),
        ("keys", "Quota keys of which gifts or needs are known.", lambda: quotas.keys),
    ):
        metrics.gauge(f"headgate_quota_{name}", text, partial(_as_number, gauge))
    for name, text, counter in (
        ("turns", "Turns of the keeper.", lambda: quotas.counts.turns),
        ("failures", "Turns that failed, and shards that could not be asked in one.", lambda: quotas.counts.failures),
        ("gifts", "Parts of slices given to other regions.", lambda: quotas.ledger_counts.gifts),
        ("posted", "Messages of peers that were left for another process.", lambda: quotas.counts.posted),
        (
            "refused",
            "Entries of peers that made no sense.",
            lambda: quotas.counts.refused + quotas.ledger_counts.entries_refused,
        ),
        ("other_set", "Messages of peers that know other regions.", lambda: quotas.ledger_counts.other_set),
        ("keys_waiting", "Busy keys that had to wait for a later turn.", lambda: quotas.counts.waiting),
        (
            "keys_refused",
            "Keys that stay at their floor: too many are known.",
            lambda: quotas.ledger_counts.keys_refused,
        ),
        ("keys_unreadable", "Keys whose gifts could not be read.", lambda: quotas.ledger_counts.keys_unreadable),
        ("overtaken", "Keys that another keeper had written meanwhile.", lambda: quotas.ledger_counts.overtaken),
    ):
        metrics.counter(f"headgate_quota_{name}", text, counter)
    metrics.gauge(
        "headgate_quota_busy_dropped",
        "How often shards did not note a busy key: there were too many. As the shards count it.",
        lambda: quotas.dropped,
    )


def _of_region(size: Callable[[str], int]) -> Callable[[PeerStatus], float]:
    return lambda status: size(status.region)


def _as_number(value: Callable[[], int | bool]) -> int:
    return int(value())


def _seconds(lag_ms: int | None) -> float:
    return -1 if lag_ms is None else lag_ms / 1000
