"""The model whose budget a descriptor is of, as Envoy AI Gateway names it.

A model at a backend may have several budgets, one for each tenant for example: together they decide whether a request
may go there.
"""

from typing import Final

BACKEND: Final = "backend_name"
MODEL: Final = "model_name_override"

ModelName = tuple[str, str]
"""A backend, and the name of the model there; either may be empty."""


def model_of(entries: tuple[tuple[str, str], ...]) -> ModelName | None:
    """Return the model that a descriptor names; None: it names none."""
    backend = model = ""
    for key, value in entries:
        if key == BACKEND:
            backend = value
        elif key == MODEL:
            model = value
    return (backend, model) if backend or model else None
