"""A real process with an overlay over its rules, from a directory and over xDS: what it decides, and what it says."""

import re
from pathlib import Path
from typing import Any

from headgate.xds.wire.ratelimit_config_pb2 import RateLimitConfig, RateLimitDescriptor, RateLimitPolicy

from tests.e2e.test_xds import serving
from tests.support.ads import AdsServer
from tests.support.headgate import FREE_PORTS, Headgate, serve, start, write_rules
from tests.support.waiting import wait_until

DOMAIN = "default/eg/http"
ROUTE = "httproute/default/checkout/rule/0/match/0/*"
BUCKET = f"overlay:\n- domain: default/eg/*\n  path: {ROUTE}\n  algorithm: gcra\n  burst: 2\n"
OPEN = "overlay:\n- domain: default/eg/*\n  path: httproute/default/*\n  shadow_mode: true\n"


def policy(requests: int) -> RateLimitConfig:
    """One limit of a route, as Envoy Gateway sends it; of a year, so that no window ends during a test."""
    limit = RateLimitPolicy(unit=6, requests_per_unit=requests)  # type: ignore[arg-type]
    header = RateLimitDescriptor(key="rule-0-match-0", value="rule-0-match-0", rate_limit=limit)
    route = RateLimitDescriptor(key=ROUTE, value=ROUTE, descriptors=[header])
    return RateLimitConfig(name=DOMAIN, domain=DOMAIN, descriptors=[route])


def admitted(headgate: Headgate, attempts: int = 10) -> int:
    entries = [{"key": key, "value": key} for key in (ROUTE, "rule-0-match-0")]
    body = {"domain": DOMAIN, "descriptors": [{"entries": entries}]}
    return sum(headgate.post_json(body).status == 200 for _ in range(attempts))


def rules(headgate: Headgate) -> Any:
    return headgate.get("/rules").json()


def rule(headgate: Headgate) -> Any:
    (found,) = rules(headgate)["rules"]
    return found


def lay(directory: Path, text: str) -> Path:
    return write_rules(directory, text, "o.yaml")


def test_over_xds_an_overlay_decides_changes_and_outlives_a_restart(tmp_path: Path) -> None:
    overlay = lay(tmp_path / "overlay", BUCKET)
    arguments = ("--rules-overlay", str(overlay), "--data-dir", str(tmp_path / "data"))
    with AdsServer() as ads, serving(ads, *arguments) as headgate:
        ads.send([policy(1000)])
        wait_until(lambda: rules(headgate)["rules"], "the rules")
        assert admitted(headgate) == 2
        assert rule(headgate)["origins"] == {
            "algorithm": f"overlay {overlay}/o.yaml:4",
            "burst": f"overlay {overlay}/o.yaml:5",
        }
        version = rules(headgate)["digest"]
        # Its change alone brings another set into force.
        lay(overlay, OPEN)
        wait_until(lambda: rules(headgate)["digest"] != version, "the next set")
        assert admitted(headgate) == 10
        lay(overlay, BUCKET)
        wait_until(lambda: rules(headgate)["digest"] == version, "the first set")
        # Rules go on changing under it, and a limit that it can't keep is no reason to refuse them.
        ads.send([policy(0)])
        wait_until(lambda: rule(headgate)["limit"]["requests_per_unit"] == 0, "the policy")
        assert (admitted(headgate), ads.refusals) == (0, [])
        (clash,) = rules(headgate)["overlay"]["clashes"]["problems"]
        assert clash.startswith(f"{overlay}/o.yaml:4: algorithm: gcra needs a `requests_per_unit` of at least 1")
        assert f" at xds/{DOMAIN}:" in clash
        ads.send([policy(1000)])
        wait_until(lambda: rules(headgate)["digest"] == version, "the first set")
    lay(overlay, "overlay:\n- algorithm: gcrb\n")
    with serving(ads, *arguments) as headgate:
        assert (rules(headgate)["source"], rules(headgate)["digest"]) == ("snapshot", version)
        assert admitted(headgate) == 2
        assert rules(headgate)["overlay"]["in_sync"] is False


def test_with_a_mistake_the_last_good_overlay_serves_on_and_says_so(tmp_path: Path) -> None:
    text = f"domain: {DOMAIN}\ndescriptors:\n- key: user\n  rate_limit: {{unit: year, requests_per_unit: 5}}\n"
    directory, overlay = write_rules(tmp_path / "rules", text), lay(tmp_path / "overlay", "overlay:\n- name: mine\n")
    with serve(directory, "--rules-overlay", str(overlay), "--default-on-error", "closed") as headgate:
        assert rule(headgate)["origins"] == {
            "name": f"overlay {overlay}/o.yaml:2",
            "on_error": "setting default_on_error",
        }
        lay(overlay, "overlay:\n- name: mine\n  on_eror: open\n")
        wait_until(lambda: not rules(headgate)["overlay"]["in_sync"], "the refusal")
        (problem,) = rules(headgate)["overlay"]["refused"]["problems"]
        assert problem.startswith(f"{overlay}/o.yaml:3: unknown key `on_eror` in an entry of an overlay; did you mean")
        assert headgate.get("/readyz").json()["rules"]["overlay_in_sync"] is False
        write_rules(directory, text.replace("5", "6"))
        wait_until(lambda: rule(headgate)["limit"]["requests_per_unit"] == 6, "the other rules")
        assert rule(headgate)["id"] == "mine"
        metric = re.compile(r"^headgate_rules_overlay_in_sync(\{.*\})? 0", re.MULTILINE)
        wait_until(lambda: metric.search(headgate.get("/metrics").body.decode()), "the metric", every_s=0.2)
        (overlay / "o.yaml").unlink()
        wait_until(lambda: "no overlay file" in rules(headgate)["overlay"]["refused"]["problems"][0], "the refusal")
        lay(overlay, "overlay:\n- name: other\n- path: usr\n  name: none\n")
        wait_until(lambda: rule(headgate)["id"] == "other", "the overlay")
        shown = rules(headgate)["overlay"]
        assert (shown["in_sync"], shown["refused"]) == (True, None)
        (unmatched,) = shown["unmatched"]["problems"]
        assert unmatched.endswith("no rule matches the step `usr` of its path; did you mean `user`?")


def test_a_start_with_an_overlay_that_can_not_be_used_fails_with_its_line(tmp_path: Path) -> None:
    overlay = lay(tmp_path / "overlay", "overlay:\n- algorithm: gcrb\n")
    arguments = ("--rules", str(write_rules(tmp_path / "rules")), "--rules-overlay", str(overlay))
    with start("serve", *arguments, *FREE_PORTS) as headgate:
        assert headgate.wait_exit() == 1
        assert any("o.yaml:2: `algorithm` must be one of" in line for line in headgate.lines), headgate.lines
