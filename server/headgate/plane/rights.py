"""Rights of those who use a plane: lines `NAME=RIGHT`, several for one name, followed while the file changes.

`watch` is to follow the log and to read rules, `change:DOMAIN` to change a domain's rules, `change:*` those of all.
Whoever may change something may read too.
"""

from collections.abc import Iterable
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.endpoint.admins import Operator
from headgate.endpoint.followed import FollowedFile
from headgate.endpoint.tokens import token_lines
from headgate.errors import ConfigError, Forbidden

WATCH: Final = "watch"
_CHANGE: Final = "change:"
_EVERY: Final = "change:*"
_SETTING: Final = "plane_rights_file"
MOST_LINES: Final = 10_000

Rights = dict[str, frozenset[str]]


class RightsFile(FollowedFile[Rights]):
    """The file of rights. Raises ConfigError at first."""

    def __init__(self, path: str, logger: FilteringBoundLogger) -> None:
        super().__init__(path, logger, _read, "rights")

    def log_reloaded(self) -> None:
        self.logger.info("rights_reloaded", file=self.path, names=len(self))

    def log_failed(self) -> None:
        self.logger.warning("rights_reload_failed", reason=self.error, names=len(self))


def _read(path: str) -> Rights:
    rights: dict[str, set[str]] = {}
    for count, (number, line) in enumerate(token_lines(_SETTING, path)):
        name, _, right = (part.strip() for part in line.partition("="))
        if not name or not (right == WATCH or (right.startswith(_CHANGE) and right != _CHANGE)):
            raise ConfigError(
                f"{_SETTING} {path}:{number}: expected NAME=RIGHT, where NAME is one of the token file or a certificate"
                " and RIGHT is `watch`, `change:DOMAIN` or `change:*`"
            )
        if count >= MOST_LINES:
            raise ConfigError(f"{_SETTING} {path}: more than {MOST_LINES} lines")
        rights.setdefault(name, set()).add(right)
    return {name: frozenset(given) for name, given in rights.items()}


def may_read(file: RightsFile | None, operator: Operator) -> None:
    """Raise Forbidden unless someone may follow and read. Without a file, whoever is known may do everything."""
    if file is not None and not file.kept.get(operator.who):
        raise Forbidden(f"{operator.who!r} may not read rules here: {_SETTING} has no line for it")


def may_change(file: RightsFile | None, operator: Operator, domains: Iterable[str]) -> None:
    """Raise Forbidden unless someone may change the rules of all these domains."""
    if file is None:
        return
    rights = file.kept.get(operator.who, frozenset())
    missing = sorted({name for name in domains if _CHANGE + name not in rights})
    if missing and _EVERY not in rights:
        raise Forbidden(
            f"{operator.who!r} may not change rules of {', '.join(map(repr, missing[:10]))}: "
            f"{_SETTING} has no line {operator.who}={_CHANGE}{missing[0]}"
        )
