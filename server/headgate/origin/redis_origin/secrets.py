"""Passwords in files: read when a connection is made, so that a rotated one needs no restart.

A file that can't be read is said by its name and the reason; what is in it is never said.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headgate.errors import ConfigError
from headgate.origin.redis_origin.errors import NotUsable
from headgate.origin.redis_origin.url import ACCEPTED, Credentials, RedisUrl, is_redis_url, parse_redis_url

FILE_SCHEME: Final = "file:"
MOST_BYTES: Final = 64 * 1024
"""Size of a file with a secret: a URL of the most hosts that are allowed fits. More is another file."""

Login = Callable[[], Credentials]
"""Finds user and password for a server, anew for each connection. Raises NotUsable."""


def read_url(origin: str) -> RedisUrl:
    """The URL that an `origin` setting is, or that the file it names holds. Raises ConfigError."""
    if not origin.startswith(FILE_SCHEME):
        return parse_redis_url(origin)
    path = origin.removeprefix(FILE_SCHEME)
    url = _read(path)
    if not is_redis_url(url):
        raise ConfigError(f"{path}: expected an origin URL: {', '.join(ACCEPTED)}")
    try:
        return parse_redis_url(url)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def login(origin: str) -> Login:
    """That of the servers which count."""
    return lambda: _resolve(_now(origin).credentials)


def sentinel_login(origin: str) -> Login:
    """That of the sentinels."""
    return lambda: _resolve(_now(origin).sentinel_credentials)


def _now(origin: str) -> RedisUrl:
    try:
        return read_url(origin)
    except ConfigError as error:
        raise NotUsable(str(error)) from None


def _resolve(credentials: Credentials) -> Credentials:
    if credentials.password_file is None:
        return credentials
    try:
        return replace(credentials, password=_read(credentials.password_file))
    except ConfigError as error:
        raise NotUsable(str(error)) from None


def _read(path: str) -> str:
    """A file's one line."""
    try:
        # Without waiting for whoever writes to a pipe: the loop would wait with us.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ConfigError(f"{path}: is not a file that can be read again")
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    try:
        text = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8") from None
    if not text or len(data) > MOST_BYTES or any(character in text for character in "\r\n\0"):
        raise ConfigError(f"{path}: expected one line of at most {MOST_BYTES} bytes")
    return text
