"""Envoy as docs/security.md has it send a token: with it there are decisions, without it there are none."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.support.envoy import run_envoy
from tests.support.envoy_config import header_limit, http_config, route
from tests.support.headgate import serve, write_rules
from tests.support.waiting import wait_until

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
ROUTES = [route("/", limits=[header_limit("user")])]


def service_of_the_page(token: str) -> dict[str, Any]:
    (text,) = re.findall(r"```yaml\n(rate_limit_service:.*?)```", PAGE, re.DOTALL)
    service: dict[str, Any] = yaml.safe_load(text.replace("TOKEN", token))["rate_limit_service"]
    return {"transport_api_version": "V3", **service}


def test_envoy_sends_a_token(tmp_path: Path) -> None:
    rules = write_rules(tmp_path / "rules", "domain: edge\ndescriptors:\n- {key: user, rate_limit: "
                        "{unit: year, requests_per_unit: 2}}\n")  # fmt: skip
    (tmp_path / "tokens").write_text("first\n")
    with (
        serve(rules, "--token-file", str(tmp_path / "tokens")) as headgate,
        run_envoy(
            http_config(
                headgate=[headgate.grpc],
                routes=ROUTES,
                failure_mode_deny=True,
                rate_limit_service=service_of_the_page("first"),
            )
        ) as envoy,
    ):
        assert envoy.statuses("/", {"x-user": "alice"}, 3) == [200, 200, 429]
        assert envoy.rate_limit_errors() == 0
        # A status that Envoy takes for an error, and never lets pass where it shall deny.
        (tmp_path / "tokens").write_text("second\n")
        wait_until(lambda: envoy.get("/", {"x-user": "bob"}).status == 500, "the old token's end", timeout_s=30)
        assert envoy.rate_limit_errors() > 0
