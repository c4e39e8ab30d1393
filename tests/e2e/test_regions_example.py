"""examples/regions: three regions start by one command, count together, and leave nothing behind."""

import signal
from pathlib import Path

from tests.support.examples import EXAMPLES, children, example, exists, read_until_it_stays
from tests.support.headgate import http_request, run
from tests.support.waiting import PATIENCE_S, wait_until

REGIONS = {"eu", "us", "ap"}


def test_the_rules_are_good_and_show_every_scope() -> None:
    rules = EXAMPLES / "regions" / "rules"
    checked = run("rules", "check", str(rules))
    assert checked.returncode == 0, checked.stderr
    text = (rules / "regions.yaml").read_text()
    assert [scope for scope in ("region", "global", "quota", "cell") if f"scope: {scope}" not in text] == []


def test_it_shows_what_each_scope_admits_and_leaves_nothing_behind_after_ctrl_c() -> None:
    with example("regions/run.py", "--stay") as process:
        lines = read_until_it_stays(process)
        rows = [line.split() for line in lines]
        urls = {row[1] for row in rows if row and row[0] in REGIONS and "/regions" in row[1]}
        pages = [http_request(url.split("/")[2], "GET", "/regions").json() for url in urls]
        assert {page["region"] for page in pages} == REGIONS
        started = children(process.pid)
        assert len(started) == len(REGIONS)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    wait_until(lambda: not any(map(exists, started)), "the regions to end")
    assert not Path(rows[-1][-1]).exists()
    admitted = {row[0]: [int(word) for word in row[1:]] for row in rows if len(row) == 5 and row[1].isdigit()}
    assert admitted["region"] == [30, 30, 30, 90]
    assert admitted["global"] == [30, 0, 0, 30]
    assert admitted["cell"] == [10, 10, 10, 30]
    peers = [row for row in rows if len(row) > 3 and row[1] == "to" and row[3] == "connected"]
    assert len(peers) == len(REGIONS) * (len(REGIONS) - 1), lines
