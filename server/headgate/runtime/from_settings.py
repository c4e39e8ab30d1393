"""Values of each part of a process, from the settings: no part knows Settings."""

from collections.abc import Mapping
from typing import Final

from headgate.config import Settings
from headgate.endpoint.tls import TlsFiles
from headgate.handler import AnswerSettings
from headgate.region.breaker import BreakerSettings
from headgate.rules.request_limits import RequestLimits
from headgate.runtime.memory_limit import counters_within, memory_limit_bytes
from headgate.transport.interface import GuardLimits, TransportLimits
from headgate.wire.ratelimit import RequestBounds

BREAKER_COOLDOWN_GROWTH: Final = 4
"""A breaker's cooldown doubles, on failed probes, up to this many times its first."""


def answer_settings(settings: Settings) -> AnswerSettings:
    """Return what the settings say of answers to requests."""
    return AnswerSettings(
        response_headers=settings.response_headers,
        header_limit=settings.header_limit,
        header_remaining=settings.header_remaining,
        header_reset=settings.header_reset,
        header_retry_after=settings.header_retry_after,
        exact_reset=settings.exact_reset,
        denied_body=settings.denied_body,
        shadow_mode=settings.shadow_mode,
        dynamic_metadata=settings.dynamic_metadata,
        request_metadata=settings.request_metadata,
        reason_header=settings.reason_header or "",
        reason_metadata=settings.reason_metadata,
        match_cache_entries=settings.match_cache_entries,
        match_cache_bytes=settings.match_cache_bytes,
        bounds=RequestBounds(settings.max_descriptors, settings.max_entries),
        request_limits=RequestLimits(settings.request_limits),
        near_limit_ratio=settings.near_limit_ratio,
    )


def transport_limits(settings: Settings) -> TransportLimits:
    """Return what the settings say of bounds on callers and connections."""
    return TransportLimits(
        max_message_bytes=settings.max_message_bytes,
        max_pending_calls=settings.max_pending_calls,
        max_pending_bytes=settings.max_pending_bytes,
        max_concurrent_streams=settings.max_concurrent_streams,
        guard=GuardLimits(
            max_connections=settings.max_connections,
            max_connections_per_address=settings.max_connections_per_address,
            max_new_connections_per_s=settings.max_new_connections_per_s,
            max_open_calls=settings.max_open_calls,
            handshake_timeout_s=settings.handshake_timeout_s,
            message_timeout_s=settings.message_timeout_s,
            idle_timeout_s=settings.idle_timeout_s,
            max_connection_age_s=settings.max_connection_age_s,
            max_unfinished_bytes=settings.max_unfinished_bytes,
        ),
    )


def max_cells(settings: Settings) -> int:
    """Return how many counters each process of these settings may keep."""
    if settings.max_cells is not None:
        return settings.max_cells
    return counters_within(memory_limit_bytes(), settings.workers)


def breaker_settings(settings: Settings) -> BreakerSettings:
    """Return what the settings say of a shard's breaker."""
    return BreakerSettings(
        settings.breaker_error_rate,
        settings.breaker_min_samples,
        settings.breaker_cooldown_s,
        settings.breaker_cooldown_s * BREAKER_COOLDOWN_GROWTH,
        settings.breaker_missed_share,
    )


def tls_files(settings: Settings) -> TlsFiles | None:
    """None without TLS. The settings' own checks see to it that both files are named, or none."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    client_ca = settings.client_ca
    return TlsFiles(str(settings.tls_cert), str(settings.tls_key), str(client_ca) if client_ca else None)


def certificate_files(settings: Settings) -> Mapping[str, str]:
    """The files of certificates that this process shows others, by what they are for."""
    files = {"server": settings.tls_cert, "exchange": settings.exchange_tls_cert}
    return {use: str(path) for use, path in files.items() if path is not None}
