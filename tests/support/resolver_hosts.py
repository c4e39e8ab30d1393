"""Host names that come, go and stall, for processes that are started with `environ`.

```python
hosts = ResolverHosts(directory)
hosts.set("shard-0.test", "127.0.0.1")
with serve(rules, environ=hosts.environ): …
hosts.set("shard-0.test", GONE)
```
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

GONE: Final = "gone"
STALLED: Final = "stalled"


class ResolverHosts:
    def __init__(self, directory: Path) -> None:
        self._file = directory / "hosts"
        self._hosts: dict[str, str] = {}

    @property
    def environ(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(Path(__file__).parent / "resolver"), "RESOLVER_HOSTS": str(self._file)}

    def set(self, name: str, answer: str) -> None:
        """From the next question on."""
        self._hosts[name] = answer
        written = self._file.with_suffix(".new")
        written.write_text("".join(f"{host} {answer}\n" for host, answer in self._hosts.items()))
        written.replace(self._file)
