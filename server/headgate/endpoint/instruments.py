"""Metrics of what callers are let in by: certificates and tokens."""

import contextlib
from collections.abc import Iterable, Mapping

from headgate.endpoint.expiry import expires_at
from headgate.endpoint.tokens import TokenFile
from headgate.telemetry.metrics import Metrics


def register_certificates(metrics: Metrics, files: Mapping[str, str]) -> None:
    """Export when each certificate ends. `files`: paths by what they are for."""

    def expiries() -> Iterable[tuple[float, Mapping[str, str]]]:
        for use, path in files.items():
            # One that can't be read has no series: that it is wrong is logged where it is loaded.
            with contextlib.suppress(OSError, ValueError):
                yield expires_at(path), {"use": use}

    metrics.labelled_gauge(
        "headgate_certificate_expiry_timestamp_seconds",
        "When a certificate of this process ends, in unix time, as its file says now.",
        ("use",),
        expiries,
    )


def register_tokens(metrics: Metrics, tokens: TokenFile) -> None:
    """Export how many tokens are accepted, and changes of the file that were not."""
    metrics.gauge("headgate_tokens", "Bearer tokens that are accepted.", lambda: len(tokens))
    metrics.counter(
        "headgate_token_reload_failures",
        "Changes of the token file that could not be used.",
        lambda: tokens.failures,
    )
