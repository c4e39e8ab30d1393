"""Writes docs/metrics.md from the instruments: `python -m tests.support.metrics_page > docs/metrics.md`.

A test compares the page with what this writes, so a metric can't be added without it.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final

from headgate.plane import instruments as plane_instruments
from headgate.runtime.service import Service
from headgate.runtime.top import SKETCH_SIZE
from headgate.supervisor import instruments as supervisor_instruments
from headgate.telemetry import otlp
from headgate.telemetry.instrument import Instrument
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.tallies import MAX_DOMAINS, MAX_LABEL_CHARS, MAX_RULES, MAX_VALUES
from headgate.xds import instruments as xds_instruments

_HEAD = f"""\
# Metrics

<!-- Written by `python -m tests.support.metrics_page > docs/metrics.md` from the instruments -->

`GET /metrics` has them as Prometheus' text, or as OpenMetrics with exemplars for a scraper that asks for it.
With `otlp_endpoint` they are pushed too, under OpenTelemetry's names: `headgate_origin_wait_seconds`
here is `headgate.origin_wait` in `s` there, and a collector that exports to Prometheus makes the first of the
second. `target_info` has the resource's attributes; `OTEL_RESOURCE_ATTRIBUTES` adds to them. A dashboard and
alerts that are made of these are in [examples](../examples/grafana).

- **A scrape delays no request.** Numbers are plain integers that each part keeps anyway. They are read and
  written 200 series at a time, and the loop runs other work in between. So a scrape is no instant: the numbers
  that it reads last may be some milliseconds younger.
- **The number of series is bounded.** Labels come from words in the code, shards, peers, and from rules: up to
  {MAX_RULES:,} of them have series of their own, in the order in which requests meet them; all others are
  counted together as rule `(overflow)`. Where a rule asks for values (`value_to_metric`, `detailed_metric`),
  {MAX_VALUES:,} values of all such rules have series. Of domains without rules {MAX_DOMAINS} have. A label is
  at most {MAX_LABEL_CHARS} characters long. An end user is never a label.
- **`rule`** is a rule's [id](rules.md#what-a-rule-is-called); `(none)` is what no rule of the domain applies
  to, `(request)` a limit that came with its request.
- **With `--workers`** every series has a `worker` label, and the supervisor has some of its own.
- **The heaviest users** are no metric: `GET /top` and `headgate top` show the heaviest keys of each rule. Their
  admissions are read from the counters, exact for that node; the most denied keys are a sketch of {SKETCH_SIZE:,}
  keys over the last one to two minutes, whose counts are never too high, and too low by a thousandth of all denials
  at most.
- **Shards** are called by their number, in metrics, in the log and in `/readyz`.
"""


class _Anything:
    """Stands for every part of a process: instruments are only named here, and none is read."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *arguments: Any) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())


SECTIONS: Final = (
    (
        "Decisions",
        (
            "headgate_decisions",
            "headgate_decision_duration",
            "headgate_trace",
            "headgate_requests",
            "headgate_match_cache",
        ),
    ),
    ("Per rule", ("headgate_rule_", "headgate_unknown_domain")),
    ("Rules", ("headgate_rules_",)),
    ("Rules from an xDS server", ("headgate_xds_",)),
    ("A rule plane (`headgate plane`)", ("headgate_plane_",)),
    ("The decision log", ("headgate_decision_log",)),
    ("Counters", ("headgate_cells_",)),
    ("Shards of the origin", ("headgate_shard_", "headgate_origin_", "headgate_live_nodes")),
    ("Other regions", ("headgate_peer_", "headgate_exchange_", "headgate_regions_", "headgate_cell_scope")),
    ("Callers", ("headgate_grpc_", "headgate_http_", "headgate_token", "headgate_certificate")),
    ("Supervisor of several workers", ("headgate_worker", "headgate_supervisor_")),
    ("Under the names of envoyproxy/ratelimit, with `ratelimit_metrics`", ("ratelimit_",)),
    ("The process", ("process_", "headgate_")),
)
"""Titles, and how the names of their metrics begin; a metric is in the first section that fits."""


def all_instruments() -> list[Instrument]:
    """Every metric that there is, each once."""
    metrics, it = Metrics(node="", region=""), _Anything()
    parts: Any = it
    Service.register(parts, metrics)
    supervisor_instruments.register(metrics, parts, parts, parts, parts)
    otlp.register(metrics, parts)
    xds_instruments.register(metrics, parts)
    plane_instruments.register(metrics, parts)
    plane_instruments.register_store(metrics, parts)
    return list({instrument.name: instrument for instrument in metrics.instruments}.values())


def metrics_page() -> str:
    """The whole page."""
    lines, left = [_HEAD], all_instruments()
    for title, begins in SECTIONS:
        lines += [f"## {title}", "", "| metric | kind | labels | means |", "|---|---|---|---|"]
        lines += [_row(instrument) for instrument in left if instrument.name.startswith(begins)]
        lines.append("")
        left = [instrument for instrument in left if not instrument.name.startswith(begins)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(instrument: Instrument) -> str:
    labels = ", ".join(f"`{label}`" for label in instrument.labels)
    means = instrument.description
    if instrument.bounds:
        bounds = ", ".join(f"{bound:g}" for bound in instrument.bounds)
        means += f" Buckets up to {bounds}."
    return f"| `{instrument.exported_name}` | {instrument.kind} | {labels} | {means} |"


if __name__ == "__main__":
    sys.stdout.write(metrics_page())
