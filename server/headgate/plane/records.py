"""Records of a plane as of one moment, looked up one by one: the cost of a look follows from what is looked for."""

from collections.abc import Iterator
from typing import Final

from headgate.limiter.rule_name import Steps
from headgate.plane.content import path_of, path_text
from headgate.plane.database import SqlConnection
from headgate.plane.entry import MOST_CHANGES, RecordKind, RuleChange
from headgate.plane.marks import RolloutRecord, ShadowRecord, rollout_of, shadow_of

MOST_MARKS: Final = MOST_CHANGES + 1
"""Records of one kind beside a domain's rules: a rollout, and its rules."""
_ROOT: Final = path_text(())
# Statements say `kind > 0` beside the kind, so that sqlite knows the index that has no rules in force.
_FIELDS: Final = "SELECT domain, kind, path, rule FROM rules"


class Records:
    """Looks into one state of the database."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection

    # Rules in force

    def rule(self, domain: str, path: Steps) -> bytes | None:
        """Return one rule in force; None if there is none."""
        return self.record(domain, RecordKind.RULE, path)

    def below(self, domain: str, path: Steps, most: int) -> list[RuleChange]:
        """Return rules that stand below a path, not at it; at most so many."""
        begin = path_text(path)[:-1] + ("," if path else "")
        # Paths are compared as bytes: all below begin with these and `[`, which `\` is next to.
        query = f"{_FIELDS} WHERE domain = ? AND kind = 0 AND path > ? AND path < ? LIMIT ?"
        return self._found(query, (domain, begin + "[", begin + "\\", most))

    def patterns(self, domain: str, above: Steps, key: str) -> dict[str, bytes]:
        """Return the rules of a key whose values have a `*`, by value."""
        slot = path_text((*above, (key, "")))
        found = self._found(f"{_FIELDS} WHERE domain = ? AND slot = ?", (domain, slot))
        return {change.path[-1][1]: change.rule or b"" for change in found}

    # All kinds

    def record(self, domain: str, kind: RecordKind, path: Steps) -> bytes | None:
        """Return one record; None if there is none."""
        query = "SELECT rule FROM rules WHERE domain = ? AND kind = ? AND path = ?"
        row = self._connection.execute(query, (domain, int(kind), path_text(path))).fetchone()
        return None if row is None else bytes(row[0])

    def of_kind(self, domain: str, kind: RecordKind, most: int) -> list[RuleChange]:
        """Return the records of a domain of one kind, at most so many; that of the domain itself comes first."""
        query = f"{_FIELDS} WHERE domain = ? AND kind = ? ORDER BY path LIMIT ?"
        found = self._found(query, (domain, int(kind), most))
        return sorted(found, key=lambda change: bool(change.path))

    def rollout(self, domain: str) -> RolloutRecord | None:
        """Return the rollout of a domain; None if none is under way."""
        text = self.record(domain, RecordKind.STAGED, ())
        return None if text is None else rollout_of(RuleChange(domain, (), text, RecordKind.STAGED))

    def rollouts(self) -> list[RolloutRecord]:
        """Return all rollouts that are under way, by domain."""
        query = f"{_FIELDS} WHERE kind > 0 AND kind = 1 AND path = ? ORDER BY domain"
        return [rollout_of(record) for record in self._found(query, (_ROOT,))]

    def staged_counts(self) -> dict[str, int]:
        """Return the number of rules that each rollout changes, by domain."""
        query = "SELECT domain, COUNT(*) FROM rules WHERE kind > 0 AND kind = 1 AND path <> ? GROUP BY domain"
        return {domain: int(count) for domain, count in self._connection.execute(query, (_ROOT,))}

    def shadows(self) -> list[ShadowRecord]:
        """Return all shadows, by domain."""
        return [
            shadow_of(record)
            for record in self._found(f"{_FIELDS} WHERE kind > 0 AND kind = 2 ORDER BY domain, path", ())
        ]

    def _found(self, query: str, values: tuple[object, ...]) -> list[RuleChange]:
        return list(self._read(query, values))

    def _read(self, query: str, values: tuple[object, ...]) -> Iterator[RuleChange]:
        for domain, kind, path, rule in self._connection.execute(query, values):
            yield RuleChange(domain, path_of(path), bytes(rule), RecordKind(kind))
