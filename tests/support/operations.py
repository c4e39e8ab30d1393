"""All operations of the origin: every class that is one, in whichever package of the server it stands."""

import pkgutil
from importlib import import_module
from typing import Any

import headgate.keys
import headgate.origin
import headgate.quota
from headgate.origin.operation import Operation

ROOMS = (headgate.origin, headgate.quota, headgate.keys)
"""Packages with operations of their own."""


def _is_operation(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Operation) and hasattr(value, "lua")


def _all_operations() -> list[type[Operation[Any]]]:
    modules = [module.name for room in ROOMS for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")]
    values = [value for module in modules for value in vars(import_module(module)).values()]
    return list({value.__qualname__: value for value in values if _is_operation(value)}.values())


OPERATIONS = _all_operations()
