"""Alerts, dashboard and the expressions in the docs, run by Prometheus' own tool.

Each alert fires on series that must make it, and stays quiet on others. What the dashboard and the docs show
finds something among series of every metric that there is: so no name in it is made up.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from headgate.telemetry.instrument import Instrument, InstrumentKind

from tests.support.metrics_page import all_instruments, metrics_page
from tests.support.promtool import promtool

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "examples" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "examples" / "grafana" / "headgate.json"
RULES = {rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}

Series = dict[str, str]
LAST_LOOK = "headgate_rules_last_look_timestamp_seconds"
DAY = 86_400


class Case(NamedTuple):
    """Series by name, with values each minute in promtool's own notation; what is looked at is the 20th minute."""

    fires: Series
    quiet: Series


def counted(name: str, labels: str = "") -> Case:
    """A counter that must not grow."""
    series = f"{name}{{{labels}}}" if labels else name
    return Case({series: "0+1x30"}, {series: "5+0x30"})


def level(name: str, fires: str, quiet: str) -> Case:
    return Case({name: fires}, {name: quiet})


def cells_used(**cells: tuple[float, ...]) -> Series:
    """Shares by slot of each cell, as two of its nodes know them: one of them is behind."""
    name = "headgate_cell_scope_used_ratio"
    return {
        f'{name}{{cell="{cell}",slot="{slot}",instance="{cell}-{node}"}}': f"{share / node}+0x30"
        for cell, shares in cells.items()
        for slot, share in enumerate(shares)
        for node in (1, 2)
    }


CASES: dict[str, Case] = {
    "HeadgateNotReady": level("headgate_ready", "0+0x30", "0 0 0 1+0x30"),
    "HeadgateFailsOpen": Case(
        {
            'headgate_decisions_total{outcome="admitted",path="local"}': "0+900x30",
            'headgate_decisions_total{outcome="admitted",path="degraded_open"}': "0+100x30",
        },
        {
            'headgate_decisions_total{outcome="admitted",path="local"}': "0+999x30",
            'headgate_decisions_total{outcome="admitted",path="degraded_open"}': "0+1x30",
            'headgate_decisions_total{outcome="denied",path="degraded_closed"}': "0+100x30",
        },
    ),
    "HeadgateFailsClosed": Case(
        {
            'headgate_decisions_total{outcome="admitted",path="local"}': "0+900x30",
            'headgate_decisions_total{outcome="denied",path="degraded_closed"}': "0+100x30",
        },
        {
            'headgate_decisions_total{outcome="admitted",path="local"}': "0+900x30",
            'headgate_decisions_total{outcome="denied",path="deny_cache"}': "0+100x30",
        },
    ),
    "HeadgateUnknownDomain": counted("headgate_unknown_domain_requests_total", 'domain="egde"'),
    "HeadgateRulesNotDelivered": Case(
        {
            'headgate_rules_last_look_timestamp_seconds{instance="a"}': "1160+0x30",
            'headgate_rules_loading{instance="a"}': "0+0x30",
            'headgate_rules_loading{instance="b"}': "1+0x30",
        },
        {
            'headgate_rules_last_look_timestamp_seconds{instance="a"}': "0+60x30",
            'headgate_rules_loading{instance="a"}': "0+0x30",
            'headgate_rules_last_look_timestamp_seconds{instance="b"}': "1100+0x30",
            'headgate_rules_loading{instance="b"}': "1+0x30",
        },
    ),
    "HeadgateRulesLoading": level("headgate_rules_loading", "0 0 1+0x30", "1+0x11 0 1+0x30"),
    "HeadgateRulesNotDeliveredForLong": level(LAST_LOOK, "1100+0x30", "1160+0x30"),
    "HeadgateRulesRefused": Case(
        {"headgate_rules_in_sync": "1 1 0+0x30", LAST_LOOK: "0+60x30"},
        {"headgate_rules_in_sync": "1 1 0+0x30", LAST_LOOK: "0+60x15 900+0x15"},
    ),
    "HeadgateXdsStreamsEnd": Case(
        {"headgate_xds_streams_total": "0+1x30", LAST_LOOK: "0+60x30"},
        {"headgate_xds_streams_total": "0+1x30", LAST_LOOK: "0+60x15 900+0x15"},
    ),
    "HeadgateOverlayRefused": level("headgate_rules_overlay_in_sync", "1 1 0+0x30", "1+0x18 0 1 1"),
    "HeadgateRulesDiffer": Case(
        {'headgate_rules_fingerprint{instance="a"}': "17+0x30", 'headgate_rules_fingerprint{instance="b"}': "18+0x30"},
        {'headgate_rules_fingerprint{instance="a"}': "17+0x30", 'headgate_rules_fingerprint{instance="b"}': "17+0x30"},
    ),
    "HeadgatePlaneFollowersBehind": level(
        'headgate_plane_followers{state="behind",instance="root"}', "2+0x30", "2 2 0+0x30"
    ),
    "HeadgatePlaneFollowersRefuse": level(
        'headgate_plane_followers{state="refusing",instance="root"}', "1+0x30", "0+0x30"
    ),
    "HeadgateRolloutRolledBack": counted("headgate_plane_rollouts_total", 'outcome="rolled_back"'),
    "HeadgateRolloutStalled": level(
        'headgate_plane_rollouts_under_way{state="waiting"}', "1+0x30", "1+0x16 0 0 1 1 1 1"
    ),
    "HeadgatePlaneRelayCutOff": Case(
        {'headgate_plane_age_seconds{instance="relay"}': "31+0x30"},
        {
            'headgate_plane_age_seconds{instance="root"}': "31+0x30",
            'headgate_plane_store_up{instance="root"}': "0+0x30",
        },
    ),
    "HeadgatePlaneStoreLost": level("headgate_plane_store_up", "0+0x30", "0 0 1+0x30"),
    "HeadgateShardOpen": Case(
        {
            'headgate_shard_open{shard="1",instance="a"}': "0+0x30",
            'headgate_shard_open{shard="1",instance="b"}': "1+0x30",
        },
        {'headgate_shard_open{shard="1",instance="a"}': "0+0x30"},
    ),
    "HeadgateShardDegraded": counted("headgate_shard_degraded_total", 'shard="0"'),
    "HeadgateReplayOld": level('headgate_shard_replay_age_seconds{shard="0"}', "0+5x30", "29+0x30"),
    "HeadgateOverAdmission": counted("headgate_shard_over_limit_total", 'shard="0"'),
    "HeadgateShardClockSet": Case(
        {'headgate_shard_clock_steps_total{shard="0"}': "0+0x15 1+0x15"},
        {'headgate_shard_clock_steps_total{shard="0"}': "3+0x30"},
    ),
    "HeadgateShardListsDiffer": level("headgate_origin_nodes_listed_otherwise", "2+0x30", "2 2 2 0+0x30"),
    "HeadgateShardListHangs": level("headgate_origin_list_changing", "1+0x30", "1 1 1 0+0x30"),
    "HeadgateShardLostMemory": Case(
        {'headgate_shard_refills_total{shard="0"}': "0+0x15 1+0x15"},
        {'headgate_shard_refills_total{shard="0"}': "3+0x30"},
    ),
    "HeadgatePeerUnreachable": Case(
        {
            'headgate_peer_connected{peer="us",instance="a"}': "0+0x30",
            'headgate_peer_connected{peer="us",instance="b"}': "0+0x30",
        },
        {
            'headgate_peer_connected{peer="us",instance="a"}': "0+0x30",
            'headgate_peer_connected{peer="us",instance="b"}': "1+0x30",
        },
    ),
    "HeadgatePeerFileRefused": level("headgate_peer_file_in_force", "0+0x30", "1+0x30"),
    "HeadgatePeerLag": level('headgate_peer_lag_seconds{peer="us"}', "11+0x30", "2+0x30"),
    "HeadgateRegionNotHeard": Case(
        {"headgate_regions_active": "2+0x30", "headgate_regions_configured": "3+0x30"},
        {"headgate_regions_active": "3+0x30", "headgate_regions_configured": "3+0x30"},
    ),
    "HeadgateCellScopeExceeded": Case(
        {'headgate_cell_scope_exceeded{times="1.5"}': "1+0x30"},
        {'headgate_cell_scope_exceeded{times="1.5"}': "0+0x30"},
    ),
    "HeadgateCellScopeExceededThrice": Case(
        {'headgate_cell_scope_exceeded{times="3"}': "1+0x30"},
        {'headgate_cell_scope_exceeded{times="3"}': "0+0x30", 'headgate_cell_scope_exceeded{times="1.5"}': "1+0x30"},
    ),
    "HeadgateCellScopeAdmitted": Case(
        cells_used(eu=(0.2, 0.8), us=(0.4, 0.9)),
        cells_used(eu=(0.2, 1.0), us=(1.0, 0.4)),  # two keys, in two slots
    ),
    "HeadgateCellScopeAdmittedThrice": Case(
        cells_used(eu=(1.0, 0.1), us=(1.0, 0.1), ap=(1.0, 0.1)), cells_used(eu=(1.0, 0.1), us=(1.0, 1.0), ap=(0.9, 1.0))
    ),
    "HeadgateQuotaNoKeeper": Case(
        {'headgate_quota_keeper{instance="a"}': "0+0x30", 'headgate_quota_keeper{instance="b"}': "0+0x30"},
        {'headgate_quota_keeper{instance="a"}': "0+0x30", 'headgate_quota_keeper{instance="b"}': "1+0x30"},
    ),
    "HeadgateQuotaAtFloors": Case(
        {'headgate_quota_by_slice{instance="a"}': "0+0x30", 'headgate_quota_by_slice{instance="b"}': "0+0x30"},
        {'headgate_quota_by_slice{instance="a"}': "0+0x30", 'headgate_quota_by_slice{instance="b"}': "1+0x30"},
    ),
    "HeadgatePeerClockSkewed": level('headgate_peer_clock_skewed{peer="us"}', "1+0x30", "0+0x30"),
    "HeadgatePeerEntriesRefused": counted("headgate_peer_refused_entries_total", 'peer="us"'),
    "HeadgatePeerOverBudget": counted("headgate_peer_over_budget_total", 'peer="us"'),
    "HeadgateOverload": Case(
        {'headgate_grpc_refused_total{reason="overload"}': "0+1x30"},
        {'headgate_grpc_refused_total{reason="too_large"}': "0+1x30"},
    ),
    "HeadgateCallersRefused": Case(
        {'headgate_grpc_refused_total{reason="forbidden"}': "0+1x30"},
        {'headgate_grpc_refused_total{reason="overload"}': "0+1x30"},
    ),
    "HeadgateConnectionsRefused": counted("headgate_grpc_connections_refused_total", 'reason="address"'),
    "HeadgateTokensNotReloaded": counted("headgate_token_reload_failures_total"),
    "HeadgateCertificateExpires": level(
        'headgate_certificate_expiry_timestamp_seconds{use="server"}', f"{6 * DAY}+0x30", f"{9 * DAY}+0x30"
    ),
    "HeadgateLoopLag": level("headgate_loop_lag_peak_seconds", "0.06+0x30", "0.01+0x30"),
    "HeadgateDrops": counted("headgate_decision_log_dropped_total"),
    "HeadgateWorkerRestarts": counted("headgate_worker_restarts_total", 'worker="0"'),
}


def run_tests(tmp_path: Path, groups: list[dict[str, Any]], rules: list[str] | None = None) -> None:
    file = tmp_path / "tests.yaml"
    document = {"rule_files": rules or [], "evaluation_interval": "1m", "tests": groups}
    file.write_text(yaml.safe_dump(document))
    ran = subprocess.run([promtool(), "test", "rules", file], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def group(series: Series, expression: str, *, finds: bool) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f"count({expression}) >bool 0",
                "eval_time": "20m",
                "exp_samples": [{"labels": "{}", "value": 1}] if finds else [],
            }
        ],
    }


@pytest.mark.debian
def test_promtool_reads_the_alerts() -> None:
    ran = subprocess.run([promtool(), "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_is_tried() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.debian
def test_every_alert_fires_when_it_must_and_only_then(tmp_path: Path) -> None:
    groups = []
    for alert, case in CASES.items():
        firing = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
        groups += [group(case.fires, firing, finds=True), group(case.quiet, firing, finds=False)]
    run_tests(tmp_path, groups, [str(ALERTS)])


@pytest.mark.debian
def test_a_test_that_expects_too_much_fails(tmp_path: Path) -> None:
    """The harness itself can fail: a quiet series that is said to fire."""
    firing = 'ALERTS{alertname="HeadgateShardOpen",alertstate="firing"}'
    with pytest.raises(AssertionError):
        run_tests(tmp_path, [group(CASES["HeadgateShardOpen"].quiet, firing, finds=True)], [str(ALERTS)])


@pytest.mark.debian
def test_every_part_of_the_alert_on_drops_fires(tmp_path: Path) -> None:
    names = re.findall(r"increase\((.+?)\[", RULES["HeadgateDrops"]["expr"])
    assert len(names) == 8
    firing = 'ALERTS{alertname="HeadgateDrops",alertstate="firing"}'
    groups = [group({name: "0+1x30"}, firing, finds=True) for name in names]
    groups += [group({name: "7+0x30"}, firing, finds=False) for name in names]
    run_tests(tmp_path, groups, [str(ALERTS)])


def test_every_metric_in_an_alert_is_one_that_there_is() -> None:
    there = {instrument.exported_name for instrument in all_instruments()}
    for alert, rule in RULES.items():
        assert set(re.findall(r"\bheadgate_\w+", rule["expr"])) <= there, alert


# What is only shown

VALUES = {
    "outcome": ("admitted", "denied"),
    "path": ("local", "degraded_open", "degraded_closed"),
    "result": ("within_limit", "over_limit", "shadow_over_limit"),
    "reason": ("overload", "forbidden"),
}


def series_of(instrument: Instrument) -> Series:
    """Some series of a metric, growing."""
    sets: list[dict[str, str]] = [{"instance": "a", "job": "headgate"}]
    for label in instrument.labels:
        sets = [{**labels, label: value} for labels in sets for value in VALUES.get(label, ("x",))]
    if instrument.kind is not InstrumentKind.HISTOGRAM:
        return {_series(instrument.exported_name, labels): "0+10x30" for labels in sets}
    buckets = [{**labels, "le": le} for labels in sets for le in ("0.001", "+Inf")]
    return {_series(f"{instrument.name}_bucket", labels): "0+10x30" for labels in buckets}


def _series(name: str, labels: dict[str, str]) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def shown_in_the_dashboard() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def shown_in_the_docs() -> list[str]:
    """Everything in backticks, and every line of a block of `promql`, that asks Prometheus something: no alerts."""
    alerts = {" ".join(rule["expr"].split()) for rule in RULES.values()}
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "examples").rglob("*.md")]
    codes: list[str] = []
    for text in [page.read_text() for page in pages]:
        blocks = re.findall(r"^```promql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        codes += [line for block in blocks for line in block.splitlines()]
        codes += re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    asks = re.compile(
        r"\w*\(.*headgate_\w+|.*headgate_\w+[^`]* (>|<|==|!=|>=|<=) \S|.*headgate_\w+(\{.*\})?\[\w+\]", re.DOTALL
    )
    return [code for code in (" ".join(code.split()) for code in codes if asks.match(code)) if code not in alerts]


@pytest.mark.debian
def test_the_dashboard_and_the_docs_show_something(tmp_path: Path) -> None:
    series: Series = {}
    for instrument in all_instruments():
        series |= series_of(instrument)
    expressions = [*shown_in_the_dashboard(), *shown_in_the_docs()]
    assert len(shown_in_the_docs()) >= 2
    assert len(expressions) > 25
    nothing = {'up{job="headgate"}': "1+0x30"}
    groups = [group(series, _plain(expression), finds=True) for expression in expressions]
    groups += [group(nothing, _plain(expression), finds=False) for expression in expressions]
    run_tests(tmp_path, groups)


def _plain(expression: str) -> str:
    """With values for Grafana's variables. Whether it is true of these series is another matter: without comparison."""
    for name, value in {"$__rate_interval": "5m", "$instance": ".*", "$job": ".*"}.items():
        expression = expression.replace(name, value)
    return re.sub(r" (>|<|==) [^()]*$", "", expression)


def test_alerts_in_the_docs_are_alerts_that_are_tried() -> None:
    """The tables of the playbooks: each expression, and how long it must hold."""
    tried = {(" ".join(rule["expr"].split()), rule.get("for", "")) for rule in RULES.values()}
    for page in ("failures.md", "regions.md"):
        text = (ROOT / "docs" / page).read_text()
        table = text[text.index("| expression | means |") :].split("\n\n", 1)[0]
        rows = re.findall(r"^\| `(.+?)`(?: for (\d+) m)? \|", table, re.MULTILINE)
        assert len(rows) > 4
        for expression, minutes in rows:
            assert (expression, f"{minutes}m" if minutes else "") in tried, expression


def test_the_page_of_metrics_is_current() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == metrics_page(), "run: make docs"
