"""Alerts over what real processes show: their /metrics as series, second by second, in Prometheus' own engine.

promtool's clock begins at 0, so times are those since the first scrape.
"""

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.headgate import Headgate
from tests.support.promtool import ROOT, promtool
from tests.support.waiting import PATIENCE_S

ALERTS: Final = ROOT / "examples" / "prometheus" / "alerts.yaml"
SHOWN: Final = ("headgate_rules_", "headgate_plane_")
"""Beginnings of the metrics that are kept."""


def quicker(text: str, times: int) -> str:
    """Alerts that look at so many times shorter times: `> 30` and `for: 1m`."""
    text = re.sub(r"(timestamp_seconds|age_seconds) (>|<=) (\d+)", lambda m: f"{m[1]} {m[2]} {int(m[3]) / times}", text)
    return re.sub(r"for: (\d+)m$", lambda m: f"for: {60 * int(m[1]) // times}s", text, flags=re.MULTILINE)


@dataclass
class Scrapes:
    """Metrics of processes over time, by second."""

    processes: dict[str, Headgate]
    """By the name that the label `instance` has."""
    began_s: float = field(default_factory=time.time)
    _series: dict[str, dict[int, float]] = field(default_factory=dict)
    _second: int = 0

    def scrape(self) -> None:
        """Ask every process that lives."""
        self._second = int(time.time() - self.began_s) + 1
        for name, process in self.processes.items():
            if process.process.poll() is None:
                self._keep(name, process.get("/metrics").body.decode())

    def _keep(self, instance: str, text: str) -> None:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.name.startswith(SHOWN):
                    continue
                labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
                name = f'{sample.name}{{{labels}{"," if labels else ""}instance="{instance}"}}'
                is_time = sample.name.endswith("_timestamp_seconds")
                values = self._series.setdefault(name, {})
                values[self._second] = sample.value - (self.began_s if is_time else 0.0)

    def until_fires(self, alert: str, file: Path, timeout_s: float = PATIENCE_S) -> None:
        """Scrape until an alert fires."""
        self._until(lambda: alert in self.firing([alert], file), f"{alert} to fire", timeout_s)

    def until_quiet(self, alerts: Sequence[str], file: Path, timeout_s: float = PATIENCE_S) -> None:
        """Scrape until none of some alerts fires."""
        self._until(lambda: not self.firing(alerts, file), f"{alerts} to be quiet", timeout_s)

    def _until(self, condition: Callable[[], object], what: str, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        self.scrape()
        while not condition():
            assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}: {self._last()}"
            self.scrape()

    def _last(self) -> dict[str, float]:
        return {name: values[max(values)] for name, values in self._series.items()}

    def firing(self, alerts: Sequence[str], file: Path) -> set[str]:
        """Those of some alerts that fire at the last scrape."""
        return {alert for alert in alerts if self._fires(alert, file)}

    def _fires(self, alert: str, file: Path) -> bool:
        expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) >bool 0'
        test = {
            "interval": "1s",
            "input_series": [
                {"series": name, "values": self._values(values)} for name, values in sorted(self._series.items())
            ],
            "promql_expr_test": [
                {
                    "expr": expression,
                    "eval_time": f"{self._second}s",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
        document = {"rule_files": [str(file)], "evaluation_interval": "1s", "tests": [test]}
        place = file.with_name("tests.yaml")
        place.write_text(yaml.safe_dump(document))
        ran = subprocess.run([promtool(), "test", "rules", place], capture_output=True, text=True, check=False)
        assert ran.returncode == 0 or "got: nil" in ran.stdout + ran.stderr, ran.stdout + ran.stderr
        return ran.returncode == 0

    def _values(self, values: dict[int, float]) -> str:
        return " ".join(repr(values[second]) if second in values else "_" for second in range(self._second + 1))
