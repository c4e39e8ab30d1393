"""Files of a log's domains, as a rule store takes them: those of domains that did not change are kept."""

from typing import Final

from headgate.limiter.rule_name import Steps
from headgate.plane.rule_log import RuleLog
from headgate.plane.rule_text import domain_file, load
from headgate.rules.source import SourceFile

FOLDER: Final = "plane/"
"""Beginning of the names of files that are domains of a plane."""


class DomainFiles:
    """One file for each domain of a log."""

    def __init__(self, log: RuleLog) -> None:
        self._log = log
        self._made: dict[str, tuple[object, SourceFile]] = {}

    def current(self) -> list[SourceFile]:
        """Return the files of the log as it is now. A thread may call it."""
        domains = dict(self._log.domains)
        stale = [name for name, state in domains.items() if name not in self._made or self._made[name][0] != state]
        rules: dict[str, dict[Steps, bytes]] = {}
        for part in self._log.parts(stale):
            for rule in part.rules:
                rules.setdefault(rule.domain, {})[rule.path] = rule.rule or b""
        self._made = {name: made for name, made in self._made.items() if name in domains}
        for name, texts in rules.items():
            self._made[name] = (domains[name], _file(name, texts))
        return [file for _, file in self._made.values()]


def _file(domain: str, rules: dict[Steps, bytes]) -> SourceFile:
    text = domain_file(domain, {path: load(rule) for path, rule in rules.items()}).text
    return SourceFile(FOLDER + domain, text, FOLDER + domain)
