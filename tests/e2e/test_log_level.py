"""The log level of a running process, changed on the command line."""

from pathlib import Path

from tests.e2e.test_blocks import RULES, served
from tests.e2e.test_keys import command
from tests.support.headgate import write_rules
from tests.support.waiting import wait_until


def test_a_level_is_changed_to_any_other_and_comes_back_by_itself(tmp_path: Path) -> None:
    tokens = tmp_path / "admins"
    tokens.write_text("alice=token-of-alice\n")
    with served(write_rules(tmp_path / "rules", RULES), tokens, "--node-id", "one") as (node, address):

        def change(*arguments: str) -> str:
            ended = command("log-level", *arguments, "--addr", address, "--token-file", str(tokens))
            assert ended.returncode == 0, ended.stderr
            return ended.stdout

        def changes() -> list[str]:
            return [event["log_level"] for event in node.events if event["event"] == "log_level_changed"]

        assert change("error") == "one logs from error on (before: info).\n"
        assert change("debug", "--for", "1s") == "one logs from debug on (before: error).\n"
        assert node.wait_for_event("log_level_asked_for")["who"] == "alice"
        wait_until(lambda: changes() == ["error", "debug", "info"], "the setting's level to be back")
        refused = command("log-level", "warning", "--addr", address)
        assert (refused.returncode, "UNAUTHENTICATED" in refused.stderr) == (2, True)
