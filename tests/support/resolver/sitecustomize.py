"""Put on a process's path, it answers for the host names in the file that RESOLVER_HOSTS names.

A line of the file is a name and an address, or `gone`: there is no such name, or `stalled`:
the resolver does not answer, as long as resolvers take to say so. All other names are
resolved as ever. `tests.support.resolver_hosts` writes the file.
"""

import os
import socket
import time
from pathlib import Path
from typing import Any

RESOLVER_TIMEOUT_S = 5.0
"""What resolvers wait for a name server, unless told otherwise."""

_resolve = socket.getaddrinfo


def _answer(host: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    hosts = dict(line.split() for line in Path(os.environ["RESOLVER_HOSTS"]).read_text().splitlines())
    answer = hosts.get(name, host)
    if answer == "stalled":
        time.sleep(RESOLVER_TIMEOUT_S)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    if answer == "gone":
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return answer


def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
    return _resolve(_answer(host), *arguments, **options)


if "RESOLVER_HOSTS" in os.environ:
    socket.getaddrinfo = getaddrinfo
