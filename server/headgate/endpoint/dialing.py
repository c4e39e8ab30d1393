"""Channels to servers that the settings name: peers, planes, xDS servers. All are dialled in one way.

A channel is one connection, and no other channel's: a new one waits for nothing that the former waited for, and nothing
is sent twice. A proxy for the web is not the way. A server that stands still is noticed by pings, in both their bounds.
"""

from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Pings:
    """Time between pings to a server, and time to wait for the answer to one."""

    every_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """PEM files to know a server by, and to be known by there; `server_name` where that is not the address's."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files, which are replaced in place: for each channel. Raises OSError."""
        ca, key, cert = (None if file is None else file.read_bytes() for file in (self.ca, self.key, self.cert))
        return grpc.ssl_channel_credentials(ca, key, cert)


def dial(
    address: str,
    credentials: grpc.ChannelCredentials | None,
    *,
    pings: Pings,
    max_reply_bytes: int,
    server_name: str | None = None,
) -> grpc.aio.Channel:
    """Make a channel to `host:port` or `unix:/path`, in plain text without credentials."""
    target = address if address.startswith("unix:") else f"dns:///{address}"
    options = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.max_receive_message_length", max_reply_bytes),
        ("grpc.keepalive_time_ms", pings.every_ms),
        ("grpc.keepalive_timeout_ms", pings.timeout_ms),
        ("grpc.http2.ping_timeout_ms", pings.timeout_ms),  # a minute by default, even with the line above
        ("grpc.http2.max_pings_without_data", 0),
        *([] if server_name is None else [("grpc.ssl_target_name_override", server_name)]),
    ]
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, credentials, options=options)


def dial_with(address: str, tls: ServerTls | None, *, pings: Pings, max_reply_bytes: int) -> grpc.aio.Channel:
    """Make a channel with the files of the settings, read now; None: in plain text. Raises OSError."""
    if tls is None:
        return dial(address, None, pings=pings, max_reply_bytes=max_reply_bytes)
    name = tls.server_name
    return dial(address, tls.credentials(), pings=pings, max_reply_bytes=max_reply_bytes, server_name=name)
