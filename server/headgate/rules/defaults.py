"""Defaults of a server: what rules take that say nothing themselves.

They are part of the text of a rule set (source.py), as a file of one `setting: value` per line: nodes that have the
same version decide alike, and a log that kept the set knows them.
"""

from dataclasses import dataclass

from headgate.limiter.limit import Algorithm, Limit, OnError, Scope
from headgate.rules.problems import Problem, RulesError
from headgate.rules.source import DEFAULTS, SourceFile

ALGORITHM = "default_algorithm"
ON_ERROR = "default_on_error"


@dataclass(frozen=True, slots=True)
class Defaults:
    """Algorithm and failure policy of rules that name none."""

    algorithm: Algorithm = Algorithm.SLIDING_WINDOW
    on_error: OnError = OnError.LOCAL

    def algorithm_for(self, requests: int, scope: Scope | None) -> Algorithm:
        """Return the algorithm of a limit; gcra is no default for those that it can't keep."""
        if self.algorithm is Algorithm.GCRA and (requests == 0 or scope is Scope.GLOBAL):
            return PROGRAM.algorithm
        return self.algorithm

    def to_file(self) -> tuple[SourceFile, ...]:
        """Return the file that says so, as a layer; none for the defaults of the program."""
        if self == PROGRAM:
            return ()
        text = f"{ALGORITHM}: {self.algorithm.value}\n{ON_ERROR}: {self.on_error.value}\n"
        return (SourceFile(DEFAULTS, text.encode(), DEFAULTS),)

    def taken(self, given: frozenset[str], limit: Limit) -> dict[str, str]:
        """Return the fields of a limit that are the server's default and not the program's, each with its setting."""
        found: dict[str, str] = {}
        if limit.unlimited:
            return found
        if self.algorithm is not PROGRAM.algorithm and "algorithm" not in given and limit.algorithm is self.algorithm:
            found["algorithm"] = f"setting {ALGORITHM}"
        if self.on_error is not PROGRAM.on_error and not given & {"on_error", "class"}:
            found["on_error"] = f"setting {ON_ERROR}"
        return found


PROGRAM: Defaults = Defaults()
"""The defaults without any setting."""


def defaults_of(file: SourceFile | None) -> Defaults:
    """Read the file that `to_file` wrote. Raises `RulesError` for one of a version that knows other words."""
    if file is None:
        return PROGRAM
    try:
        said = dict(line.split(": ") for line in file.data.decode().splitlines())
        return Defaults(Algorithm(said[ALGORITHM]), OnError(said[ON_ERROR]))
    except (ValueError, KeyError) as error:
        raise RulesError([Problem(file.path, 1, f"defaults of another version: {error}")]) from None
