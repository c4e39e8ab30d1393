"""Printing for all commands, and the exit statuses that they share."""

import sys

EXIT_OK = 0
EXIT_FAILED = 1
"""Exit status of a command whose answer is no: rules with problems, a denial, a server that can't start."""
EXIT_USAGE = 2
"""The question could not be asked: bad flags or settings, no server, an error instead of an answer."""


def write(text: str) -> None:
    """Print an answer to stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fail(message: str, status: int) -> int:
    """One line (or one per problem) for people, no traceback; gives the status back."""
    for line in message.splitlines() or [""]:
        sys.stderr.write(f"headgate: {line}\n")
    return status


def warn(message: str) -> None:
    """One line for people."""
    sys.stderr.write(f"headgate: warning: {message}\n")


def counted(number: int, noun: str) -> str:
    """So many of something: `1 rule`, `2 rules`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def printable(text: str) -> str:
    """One line in which nothing steers a terminal, or stands for another line: what callers send must not."""
    signs = [sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode() for sign in text]
    return "".join(signs)
