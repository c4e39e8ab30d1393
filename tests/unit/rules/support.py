"""Rules from text, and requests as one line, for the tests beside this file."""

from pathlib import Path

from headgate.clock import SystemClock
from headgate.rules.compiling import compile_source
from headgate.rules.pace import Pace
from headgate.rules.problems import RulesError
from headgate.rules.ruleset import RuleSet, rule_set
from headgate.rules.saved_domain import decode_domain, encode_domain
from headgate.rules.source import RulesSource, SourceFile

FIXTURES = Path(__file__).parent / "fixtures"

Entries = list[tuple[str, str]]


def compile_text(*texts: str | bytes, names: tuple[str, ...] = (), merge_domains: bool = False) -> RuleSet:
    """A rule set from the contents of files; named a.yaml, b.yaml, … unless told."""
    file_names = names or tuple(f"{chr(ord('a') + index)}.yaml" for index in range(len(texts)))
    files = tuple(
        SourceFile(name, text if isinstance(text, bytes) else text.encode(), name)
        for name, text in zip(file_names, texts, strict=True)
    )
    return compile_source(RulesSource(files), Pace(SystemClock()), merge_domains=merge_domains)


def saved_and_read(rules: RuleSet) -> RuleSet:
    """The set as it comes back from the disk's form of its domains."""
    domains = [decode_domain(iter(encode_domain(domain, nothing)), nothing) for domain in rules.domains.values()]
    return rule_set({domain.name: domain for domain in domains}).numbered(rules.version.counter)


def nothing() -> None:
    """Do nothing between two lines."""


def problems_of(*texts: str | bytes, names: tuple[str, ...] = (), merge_domains: bool = False) -> list[str]:
    try:
        compile_text(*texts, names=names, merge_domains=merge_domains)
    except RulesError as error:
        return [str(problem) for problem in error.problems]
    return []


def entries_of(line: str) -> Entries:
    """`a=1 > b=2` as entries."""
    entries = []
    for entry in line.split(" > "):
        key, _, value = entry.strip().partition("=")
        entries.append((key, value))
    return entries


def rules_text(domain: str, *rules: tuple[str, int]) -> str:
    """A file of one-level rules: (`key` or `key=value`, requests per minute)."""
    lines = [f"domain: {domain}", "descriptors:"]
    for rule, requests in rules:
        key, _, value = rule.partition("=")
        lines.append(f"  - key: {key}")
        if value:
            lines.append(f"    value: {value}")
        lines.append(f"    rate_limit: {{unit: minute, requests_per_unit: {requests}}}")
    return "\n".join(lines) + "\n"
