"""A small file of the operator's, followed while it changes.

A file that can't be used keeps what is in force, because such files are written by other
programs, and half a file must undo nothing. What it says is never logged, only how much.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from structlog.typing import FilteringBoundLogger

from headgate.endpoint.files import FileIdentity, identity_of
from headgate.errors import ConfigError

POLL_S: Final = 1.0
"""Seconds between looks at a file: a change is in force within about this."""

Kept = TypeVar("Kept", bound=Sized)


class FollowedFile(ABC, Generic[Kept]):
    """Result of `read` on a file, read again when the file changes. The first reading raises ConfigError."""

    def __init__(self, path: str, logger: FilteringBoundLogger, read: Callable[[str], Kept], what: str) -> None:
        """`what` the file holds, for the name of the thread that looks at it."""
        self.failures = 0
        """Changes that could not be used."""
        self.error = ""
        """Reason why the file as it is now is not in force; empty when it is."""
        self.path = path
        self.logger = logger
        self._read = read
        self._what = what
        self._seen: FileIdentity = identity_of(path)
        self.kept = read(path)

    def __len__(self) -> int:
        return len(self.kept)

    def refresh(self) -> bool:
        """Look at the file, and take what it says if it changed; true if that is in force now."""
        seen = identity_of(self.path)
        if seen == self._seen:
            return False
        # Set before reading: a file that changes meanwhile is looked at again.
        self._seen = seen
        try:
            self.kept = self._read(self.path)
        except ConfigError as error:
            self.failures += 1
            self.error = str(error)
            self.log_failed()
            return False
        self.error = ""
        self.log_reloaded()
        return True

    @abstractmethod
    def log_reloaded(self) -> None:
        """Say that the file changed and is in force."""

    @abstractmethod
    def log_failed(self) -> None:
        """Say that the file changed and can't be used."""

    async def watch(self) -> None:
        """Follow the file until cancelled, beside the loop: its file system may be slow.

        In a thread of its own: whatever callers keep other threads busy with, a token that is taken back ends.
        """
        loop, executor = asyncio.get_running_loop(), ThreadPoolExecutor(1, thread_name_prefix=f"headgate-{self._what}")
        try:
            while True:
                await asyncio.sleep(POLL_S)
                if await loop.run_in_executor(executor, self.refresh):
                    await self.changed()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    async def changed(self) -> None:
        """Tell whoever has to know that what is kept is another."""
