"""Metrics of a plane: where its log ends, who follows it, and what was refused."""

from collections.abc import Iterable, Mapping

from headgate.plane.plane import Plane, PlaneStats
from headgate.plane.rollouts import RolloutEnd, Standing
from headgate.plane.shared_root import SharedRoot
from headgate.telemetry.metrics import Metrics


def register(metrics: Metrics, plane: Plane) -> None:
    """Export the head of the log, its age, and how many follow it."""
    log, stats = plane.log, plane.stats

    def followers() -> Iterable[tuple[int, Mapping[str, str]]]:
        states = plane.followers()
        at_head = [state for state in states if state.has.version == log.position.version and not state.refused]
        refusing = [state for state in states if state.refused]
        yield len(at_head), {"state": "at_head"}
        yield len(refusing), {"state": "refusing"}
        yield len(states) - len(at_head) - len(refusing), {"state": "behind"}

    metrics.gauge("headgate_plane_index", "The index of the log's last entry.", lambda: log.position.index)
    metrics.gauge("headgate_plane_rules", "Rules that the log comes to.", lambda: log.rules)
    metrics.gauge("headgate_plane_domains", "Domains that have rules.", lambda: len(log.domains))
    metrics.gauge(
        "headgate_plane_age_seconds",
        "Time since a relay last knew that it has the root's last entry, or a root among several that it has the "
        "store's; 0 at a root that is alone.",
        lambda: plane.age_ms() / 1000,
    )
    metrics.labelled_gauge(
        "headgate_plane_followers",
        "Nodes and relays that follow, by state: at_head has the last entry in force, behind has not, refusing can't "
        "take a domain of it.",
        ("state",),
        followers,
    )
    metrics.gauge("headgate_plane_streams", "Streams of followers that are open here.", lambda: stats.streams)
    metrics.counter("headgate_plane_entries", "Entries that were appended here.", lambda: stats.entries)
    metrics.counter("headgate_plane_changes", "Changes of rules that were made here.", lambda: stats.changes)
    metrics.counter(
        "headgate_plane_refused", "Calls that were refused because of problems in their rules.", lambda: stats.refused
    )
    _register_rollouts(metrics, stats)
    metrics.counter("headgate_plane_snapshots", "Times that a follower was sent all rules.", lambda: stats.snapshots)


def _register_rollouts(metrics: Metrics, stats: PlaneStats) -> None:
    metrics.labelled_gauge(
        "headgate_plane_rollouts_under_way",
        "Rollouts under way, by state: waiting is one whose time to go on has come, while a follower is behind "
        "or can't take the domain.",
        ("state",),
        lambda: [(stats.under_way[state], {"state": state.value}) for state in Standing],
    )
    metrics.labelled_counter(
        "headgate_plane_rollouts",
        "Rollouts that ended, by outcome: rolled_back is one that denied more than was expected, cancelled one that "
        "somebody ended.",
        ("outcome",),
        lambda: [(stats.rollouts[outcome], {"outcome": outcome.value}) for outcome in RolloutEnd],
    )
    metrics.gauge("headgate_plane_shadows", "Shadows that have not ended.", lambda: stats.shadows)


def register_store(metrics: Metrics, root: SharedRoot) -> None:
    """Export whether the store that several roots write can be used."""
    metrics.gauge(
        "headgate_plane_store_up",
        "1 while the store that roots share (`plane_store`) can be used, else 0: then nothing can be changed.",
        lambda: int(not root.reason),
    )
