"""The events of all log lines, read from the source: snake_case words, written out where they are logged."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.source import modules

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
EVENT = re.compile(r"[a-z]+(_[a-z]+)*")
FORWARDS = "server/headgate/telemetry/bounded.py"
"""`BoundedLogger` hands on the events of its callers; those are looked at there."""
LIBRARY = "client/"
"""It logs sentences, in the logs of the services that import it."""


def event_arguments(tree: ast.Module) -> Iterator[ast.expr]:
    """What each logging call gives as its event: an argument of `logger.info(...)`, of `bounded.emit(...)`,
    or of a function that was chosen before (`log = logger.info if fine else logger.warning`)."""
    chosen = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _chooses_a_level(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            yield node.args[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "emit" and len(node.args) == 4:
            yield node.args[2]
        elif isinstance(node.func, ast.Name) and node.func.id in chosen:
            yield node.args[0]


def _chooses_a_level(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _chooses_a_level(value.body) and _chooses_a_level(value.orelse)
    return isinstance(value, ast.Attribute) and value.attr in LEVELS


def events(argument: ast.expr) -> list[str]:
    """The texts that the argument may have; anything but literals is shown as it is written, and so is no event."""
    if isinstance(argument, ast.IfExp):
        return events(argument.body) + events(argument.orelse)
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return [argument.value]
    return [ast.unparse(argument) + " (not a literal)"]


def logged() -> Iterator[tuple[str, str]]:
    for path, tree in modules():
        if path != FORWARDS and not path.startswith(LIBRARY):
            for argument in event_arguments(tree):
                for event in events(argument):
                    yield f"{path}:{argument.lineno}", event


def test_every_event_is_snake_case_words() -> None:
    assert [(place, event) for place, event in logged() if not EVENT.fullmatch(event)] == []


def test_events_are_found_however_they_are_logged() -> None:
    """A level's method, a choice of two texts, a choice of two levels, a bounded logger's `emit`."""
    found = {event for _, event in logged()}
    assert {"task_failed", "worker_serving", "breaker_changed", "library_logged"} <= found


@pytest.mark.parametrize(
    "code",
    [
        "logger.info('rules in force')",
        "self._logger.warning('Breaker')",
        "logger.error(f'{name}_failed')",
        "log.info('fine' if ok else 'not fine')",
        "bounded.emit('info', 'kind', 'two words', {})",
        "log = logger.info if fine else logger.warning\nlog('two words')",
    ],
)
def test_what_is_no_event_is_seen(code: str) -> None:
    found = [event for argument in event_arguments(ast.parse(code)) for event in events(argument)]
    assert not all(EVENT.fullmatch(event) for event in found)
