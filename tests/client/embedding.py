"""Pages of the docs hold whole files of examples/client: a block of code whose first line names the file.

`python -m tests.client.embedding` writes them anew, and `make docs` calls it; a test compares.
"""

import re
from pathlib import Path

from tests.support.source import ROOT

PAGES = [ROOT / "docs" / "client.md", *sorted((ROOT / "docs" / "client").glob("*.md")), ROOT / "client" / "README.md"]
BLOCK = re.compile(r"^```(\w+)\n(?:#|//) (examples/client/\S+)\n.*?^```$", re.MULTILINE | re.DOTALL)


def embedded(page: str) -> str:
    """The page with the files as they are."""

    def fill(block: re.Match[str]) -> str:
        sign = "#" if block[1] == "python" else "//"
        return f"```{block[1]}\n{sign} {block[2]}\n{(ROOT / block[2]).read_text()}```"

    return BLOCK.sub(fill, page)


def files(page: Path) -> list[str]:
    """Those that the page holds."""
    return [path for _, path in BLOCK.findall(page.read_text())]


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(embedded(path.read_text()))
