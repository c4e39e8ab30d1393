"""A mark for classes that are compiled and that other classes, which are not, inherit from: transports, and tests.

mypyc reads it when it compiles; everywhere else, and where mypy's own package is not installed, it does nothing.
"""

from collections.abc import Callable
from typing import TypeVar

C = TypeVar("C")

try:
    from mypy_extensions import mypyc_attr
except ImportError:

    def mypyc_attr(*attrs: str, **kwattrs: object) -> Callable[[C], C]:
        """Mark nothing."""
        return lambda marked: marked


__all__ = ["mypyc_attr"]
