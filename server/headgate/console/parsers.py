"""Parsers of commands, and the values that several commands take."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class CommandParser(argparse.ArgumentParser):
    """Prints a description and an epilog with the lines that they have. Commands below it do so too."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter} | about)


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
