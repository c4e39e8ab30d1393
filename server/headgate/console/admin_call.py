"""Asks the admin side of one or several servers, and goes on with those that answer."""

import argparse
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from headgate.console.output import warn
from headgate.console.target import token_line, wants_tls, why_closed
from headgate.errors import ConfigError

SERVERS_HELP: Final = "admin_grpc of servers, separated by commas; dns:///name:port asks all that it names"
ALL: Final = "dns:///"
"""Prefix of a name whose every address is asked, as of a headless service."""
MAX_SERVERS: Final = 256
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Enough for 10,000 overrides, whatever their descriptors, and for any answer of the decision log."""

Answer = TypeVar("Answer", bound=Message)
T = TypeVar("T")


def addresses_of(text: str) -> list[str]:
    """Every server that the flag names. Raises ConfigError."""
    found: list[str] = []
    for address in [part.strip() for part in text.split(",") if part.strip()]:
        found += _resolved(address.removeprefix(ALL)) if address.startswith(ALL) else [address]
    return list(dict.fromkeys(found))[:MAX_SERVERS]


def _resolved(name: str) -> list[str]:
    host, _, port = name.rpartition(":")
    try:
        answers = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--addr {ALL}{name}: {error}") from None
    hosts = dict.fromkeys(str(to[0]) for *_, to in answers)
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts]


def on_all(addresses: Sequence[str], ask: Callable[[str], T]) -> list[T]:
    """Ask all servers at once and return the answers; warn for each that gives none. Raises ConfigError if none
    answers.
    """

    def one(address: str) -> T | ConfigError:
        try:
            return ask(address)
        except ConfigError as error:
            return error

    with ThreadPoolExecutor(max_workers=min(32, len(addresses))) as pool:
        answers = list(pool.map(one, addresses))
    failed = [answer for answer in answers if isinstance(answer, ConfigError)]
    told = [answer for answer in answers if not isinstance(answer, ConfigError)]
    if not told:
        raise ConfigError("\n".join(str(error) for error in failed))
    for error in failed:
        warn(f"not asked: {error}")
    return told


def call(
    args: argparse.Namespace, address: str, method: str, request: Message, answer: type[Answer], timeout_s: float
) -> Answer:
    """One call. Raises ConfigError with the address and why."""
    with _errors(args, address), _channel(args, address) as channel:
        ask = channel.unary_unary(method, type(request).SerializeToString, answer.FromString)
        reply: Answer = ask(request, timeout=timeout_s, metadata=_metadata(args))
        return reply


def call_stream(
    args: argparse.Namespace, address: str, method: str, request: Message, answer: type[Answer], timeout_s: float
) -> Iterator[Answer]:
    """One call that is answered in parts. Raises ConfigError with the address and why."""
    with _errors(args, address), _channel(args, address) as channel:
        ask = channel.unary_stream(method, type(request).SerializeToString, answer.FromString)
        yield from ask(request, timeout=timeout_s, metadata=_metadata(args))


@contextmanager
def _errors(args: argparse.Namespace, address: str) -> Iterator[None]:
    """Raise ConfigError, with the address and why, for whatever a call fails with."""
    import grpc  # noqa: PLC0415 - only once something is asked

    try:
        yield
    except grpc.RpcError as error:
        status, message = error.code().name, error.details() or ""
        raise ConfigError(f"{address}: {status}: {message}{why_closed(args, status, message)}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{address}: {error}") from None


def _channel(args: argparse.Namespace, address: str) -> Any:
    import grpc  # noqa: PLC0415 - only once something is asked

    options: list[tuple[str, Any]] = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES)]
    if not wants_tls(args):
        return grpc.insecure_channel(address, options)
    if args.tls_server_name:
        options.append(("grpc.ssl_target_name_override", args.tls_server_name))
    ca, key, cert = (path.read_bytes() if path else None for path in (args.tls_ca, args.tls_key, args.tls_cert))
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert), options)


def _metadata(args: argparse.Namespace) -> list[tuple[str, str]]:
    line = token_line(args.token_file)
    if line is None:
        return []
    # A line of the server's file, `NAME=TOKEN`, or the token alone.
    name, _, token = line.partition("=")
    return [("authorization", f"Bearer {token if name and token.strip('=') else line}")]
