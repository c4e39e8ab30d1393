"""Parsers of commands, and the values that several commands take."""

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeAlias

from headgate.console.output import EXIT_USAGE
from headgate.spelling import did_you_mean

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


_NO_CHOICE: Final = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)
"""argparse's words, which have all that a guess needs."""


class CommandParser(argparse.ArgumentParser):
    """Prints a description and an epilog with the lines that they have. Commands below it do so too."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter} | about)

    def error(self, message: str) -> NoReturn:
        """End with usage and message, and with a guess at what was meant by a misspelt command."""
        found = _NO_CHOICE.search(message)
        guess = did_you_mean(found[1], re.findall(r"[\w-]+", found[2])) if found else ""
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}{guess}\n")


def uint32(text: str) -> int:
    """A number that fits a request: from 0 on, in 32 bits."""
    with accepting(f"a whole number from 0 to {2**32 - 1}", text):
        number = int(text)
        if not 0 <= number <= 2**32 - 1:
            raise ValueError
        return number


@contextmanager
def accepting(what: str, text: str) -> Iterator[None]:
    """Say what an argument takes where it is given something else; argparse itself names a function of ours."""
    try:
        yield
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{what}, got {text!r}") from None
