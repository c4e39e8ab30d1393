"""`make audit`: what is locked, against known advisories.

    python requirements/audit.py PIP_AUDIT LOCK…

Exit status 0: every distribution was looked up and none has an advisory. 1: some have. 2:
not audited, or not all of it, because no source of advisories could be asked; that is never
taken for success, which pip-audit by itself does where an index has no advisories to give.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SOURCES = ("pypi", "osv")
"""Asked one after the other, until one has answered for everything."""

EXIT_CLEAN, EXIT_ADVISORIES, EXIT_NOT_AUDITED = 0, 1, 2
TIMEOUT_S = 600


@dataclass(frozen=True)
class Audit:
    looked_up: int = 0
    advisories: tuple[str, ...] = ()
    """`distribution version: id, …`."""
    not_looked_up: tuple[str, ...] = ()
    failure: str = ""
    """Why there is no report at all."""

    @property
    def complete(self) -> bool:
        return not self.failure and not self.not_looked_up and self.looked_up > 0


def read_report(text: str) -> Audit:
    """pip-audit's JSON. A distribution that it skipped was not looked up, whatever its exit status says."""
    try:
        dependencies: list[dict[str, Any]] = json.loads(text)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Audit(failure="pip-audit gave no report")
    skipped = tuple(d["name"] for d in dependencies if "skip_reason" in d)
    found = tuple(
        f"{d['name']} {d['version']}: {', '.join(v['id'] for v in d['vulns'])}" for d in dependencies if d.get("vulns")
    )
    return Audit(len(dependencies) - len(skipped), found, skipped)


def audit(pip_audit: str, lock: str, source: str) -> Audit:
    command = [pip_audit, "--vulnerability-service", source, "--require-hashes", "--disable-pip"]
    command += ["--progress-spinner", "off", "--format", "json", "--requirement", lock]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Audit(failure=f"{type(error).__name__}: {error}")
    report = read_report(ended.stdout)
    if report.failure and ended.stderr.strip():
        return Audit(failure=ended.stderr.strip().splitlines()[-1][:300])
    return report


def say(lock: str, source: str, result: Audit) -> None:
    for advisory in result.advisories:
        sys.stdout.write(f"{lock}: ADVISORY {advisory}\n")
    if result.failure:
        sys.stdout.write(f"{lock}: {source} could not be asked: {result.failure}\n")
    elif result.not_looked_up:
        sys.stdout.write(f"{lock}: {source} knows nothing of {len(result.not_looked_up)} distributions\n")


def judge(results: Sequence[Audit]) -> int:
    """Of all sources that were asked about one file."""
    if any(result.advisories for result in results):
        return EXIT_ADVISORIES
    return EXIT_CLEAN if any(result.complete for result in results) else EXIT_NOT_AUDITED


def check(pip_audit: str, lock: str) -> int:
    results: list[Audit] = []
    for source in SOURCES:
        results.append(audit(pip_audit, lock, source))
        say(lock, source, results[-1])
        if results[-1].complete:
            break
    status = judge(results)
    if status == EXIT_CLEAN:
        sys.stdout.write(f"{lock}: {results[-1].looked_up} distributions, no known advisory\n")
    if not any(result.complete for result in results):
        sys.stdout.write(f"{lock}: NOT AUDITED: no source of advisories answered for all of it; try again online\n")
    return status


def main(pip_audit: str, locks: Sequence[str]) -> int:
    statuses = [check(pip_audit, lock) for lock in locks]
    return EXIT_ADVISORIES if EXIT_ADVISORIES in statuses else max(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
