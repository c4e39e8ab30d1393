"""A set on disk that is changed rule by rule, for the tests beside this file."""

from pathlib import Path

from headgate.limiter.limit import Limit, Unit
from headgate.rules import snapshot
from headgate.rules.changes import Change, changed
from headgate.rules.model import RuleContent
from headgate.rules.ruleset import RuleSet
from headgate.rules.snapshot import SnapshotWriter, domain_file

from tests.unit.rules.support import compile_text

EVERYTHING = """
domain: d
descriptors:
  - key: plain
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: rich
    value: "a*b"
    share_threshold: true
    shadow_mode: true
    quota_mode: true
    detailed_metric: true
    value_to_metric: true
    metadata: {team: edge, list: [1, null, 2.5], é: 漢}
    rate_limit:
      unit: week
      unit_multiplier: 2
      requests_per_unit: 100
      name: rich
      replaces: [{name: one}, {name: two}]
      algorithm: gcra
      burst: 50
      precision: 0.5%
      class: abuse
      scope: cell
      overdraft: true
      refund: true
    descriptors:
      - {key: inner, value: x, rate_limit: {unlimited: true}}
      - {key: inner}
  - {key: exempt, value: y}
"""


def minute(requests: int) -> RuleContent:
    return RuleContent(Limit(requests, Unit.MINUTE))


class Appending:
    """A set that is saved, and changed rule by rule."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.writer = SnapshotWriter(directory)
        self.rules = compile_text(EVERYTHING)
        self.now_ms = 1
        self.writer.save(self.rules, saved_ms=0)

    def change(self, *changes: Change) -> None:
        after = changed(self.rules, changes)
        before, self.rules = self.rules, after
        self.writer.append(after, before, changes, self.now_ms)

    def restart(self) -> None:
        """Begin with what the disk has, as another process does."""
        self.writer, saved = SnapshotWriter(self.directory), snapshot.load(self.directory)
        self.writer.loaded(saved)
        self.rules = saved.rules

    @property
    def changes_files(self) -> list[Path]:
        return sorted((self.directory / snapshot.FOLDER).glob("*.changes"), key=lambda path: path.stat().st_mtime_ns)

    @property
    def changes_file(self) -> Path:
        """The file of changes, where there is one."""
        (path,) = self.changes_files
        return path

    @property
    def whole_file(self) -> Path:
        return domain_file(self.directory, "d")

    def loaded(self) -> RuleSet:
        return snapshot.load(self.directory).rules
