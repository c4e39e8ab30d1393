"""Build of Headgate: its modules as they are written, or the same modules compiled (setup.py).

This module is compiled with the others, so where it was loaded from says what they are. Both decide alike: the same
tests run over both.
"""

from typing import Final

BUILD: Final[str] = "compiled" if __file__.endswith((".so", ".pyd")) else "pure Python"
