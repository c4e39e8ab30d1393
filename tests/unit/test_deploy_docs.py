"""What docs/deploy.md shows is what its commands print, and what they would run."""

import configparser
import re
import shlex
import textwrap
from typing import Any

import yaml
from headgate.config.settings import SETTINGS

from benchmarks import capacity
from tests.support.helm import CHART, render
from tests.support.source import ROOT

PAGE = (ROOT / "docs" / "deploy.md").read_text()


def block(kind: str, first: str) -> str:
    (found,) = [text for text in re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) if text.startswith(first)]
    return str(found)


def test_the_table_of_sizes_is_what_the_command_prints() -> None:
    assert block("console", "$ .venv/bin/python benchmarks/capacity.py\n") == (
        f"$ .venv/bin/python benchmarks/capacity.py\n{capacity.table(capacity.EXAMPLES)}\n"
    )


def test_the_large_loads_are_what_the_commands_print() -> None:
    large, paid = capacity.LARGE, capacity.LARGE[-1]
    assert block("console", "$ .venv/bin/python benchmarks/capacity.py --large") == (
        f"$ .venv/bin/python benchmarks/capacity.py --large\n{capacity.table(large)}\n"
    )
    command = (
        f"$ .venv/bin/python benchmarks/capacity.py --per-s {paid.per_s} --keys {paid.keys} --descriptors "
        f"{paid.descriptors} --rules {paid.rules} --regions 3 --core-price 25 --gib-price 3 | tail -1\n"
    )
    assert block("console", command) == f"{command}{capacity.bill(paid, 3, 25, 3)}\n"


def test_the_bill_is_of_all_regions() -> None:
    load = capacity.Load(10_000, 100_000)
    found = capacity.plan(load)
    gib = (found.pods * found.pod_mib + found.redis_mib) / 1024
    bill = capacity.bill(load, 2, 10.0, 0.0)
    assert f"in 2 regions: {2 * (found.pods + found.redis_servers)} cores, {2 * gib:,.0f} GiB" in bill
    assert f" {20 * (found.pods + found.redis_servers):,} a month" in bill


def test_more_load_never_needs_less() -> None:
    base = capacity.plan(capacity.Load(10_000, 100_000))
    for more in (
        capacity.Load(20_000, 100_000),
        capacity.Load(10_000, 1_000_000),
        capacity.Load(10_000, 100_000, traffic="unique"),
        capacity.Load(10_000, 100_000, descriptors=5),
        capacity.Load(10_000, 100_000, tls=True),
        capacity.Load(10_000, 100_000, rules=1_000_000),
    ):
        plan = capacity.plan(more)
        assert plan != base
        assert plan.pods >= base.pods
        assert plan.pod_mib >= base.pod_mib
        assert plan.redis_servers >= base.redis_servers
        assert plan.redis_mib >= base.redis_mib


def test_every_cost_names_the_command_that_prints_it() -> None:
    leaves = [value for key, value in capacity.COSTS.items() if key != "about"]
    leaves = [leaf for item in leaves for leaf in ([item] if "value" in item else item.values())]
    assert len(leaves) > 10
    for leaf in leaves:
        program = shlex.split(leaf["command"])[0]
        assert program == "headgate" or (ROOT / program).exists(), leaf


def test_the_units_settings_exist_and_its_stop_is_longer_than_the_drain() -> None:
    settings = yaml.safe_load(block("yaml", "# /etc/headgate/headgate.yaml"))
    assert set(settings) <= {setting.name for setting in SETTINGS}
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # how configparser is told to keep capitals
    unit.read_string(block("ini", "# /etc/systemd/system/headgate.service"))
    assert int(unit["Service"]["TimeoutStopSec"]) >= settings["drain_s"] + 10
    assert unit["Service"]["ExecStart"].endswith("--config /etc/headgate/headgate.yaml")


def test_the_units_user_and_files_are_made_by_the_commands_beside_it() -> None:
    """Its user, its program, its settings, and what it gets as credentials."""
    unit = block("ini", "# /etc/systemd/system/headgate.service")
    commands = block("sh", "useradd")
    (user,) = re.findall(r"^User=(\w+)$", unit, re.MULTILINE)
    assert re.search(rf"^useradd --system .* {user}$", commands, re.MULTILINE)
    made = re.findall(r"^install -d .*? (/\S.*?)(?: +#.*)?$", commands, re.MULTILINE)
    directories = {place for line in made for place in line.split()}
    settings = yaml.safe_load(block("yaml", "# /etc/headgate/headgate.yaml"))
    for path in (
        *re.findall(r"^LoadCredential=\w[\w-]*:(\S+)/", unit, re.MULTILINE),
        "/etc/headgate",
        settings["rules"],
    ):
        assert path in directories
    (program,) = re.findall(r"^ExecStart=(\S+)/bin/headgate ", unit, re.MULTILINE)
    assert f"python3 -m venv {program}\n" in commands
    assert set(re.findall(r"^make (\w+)", commands, re.MULTILINE)) == {"dist"}


def values_shown() -> list[Any]:
    """Every block of YAML on the pages that is for the chart."""
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    pages = (PAGE, (ROOT / "docs" / "envoy.md").read_text())
    blocks = [text for page in pages for text in re.findall(r"^ *```yaml\n(.*?)```", page, re.DOTALL | re.MULTILINE)]
    found = [yaml.safe_load(textwrap.dedent(text)) for text in blocks]
    return [block for block in found if isinstance(block, dict) and set(block) <= set(known)]


def test_values_that_are_shown_are_values_of_the_chart() -> None:
    shown = values_shown()
    assert {key for block in shown for key in block} == {"rulesSync", "config", "extraEnv", "istio", "autoscaling"}
    for values in shown:
        assert render({"devRedis": {"enabled": True}, **values})
