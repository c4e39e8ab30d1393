"""What comes with an extra of the distribution, found when it is asked for: who lacks it is told how to get it."""

import importlib
from typing import Any


def local() -> Any:
    """Return the module `local`, which decides with the server's own engine. Raises ImportError."""
    try:
        return importlib.import_module("headgate_client.local")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"local: decides with the server's own engine, and {error.name} is not installed: "
            "pip install 'headgate-client[local]'",
            name=error.name,
        ) from error
