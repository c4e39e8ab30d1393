"""Which transport serves: the fast one where it can, the portable one where it can't."""

from functools import partial
from importlib.util import find_spec
from typing import Literal

from headgate.endpoint.tls import TlsFiles
from headgate.endpoint.trust import Trust
from headgate.errors import ConfigError
from headgate.transport.interface import Serving, Transport, TransportFactory

TransportKind = Literal["auto", "native", "grpcio"]


def choose_transport(
    kind: TransportKind,
    address: str,
    tls: TlsFiles | None = None,
    trust: Trust | None = None,
) -> TransportFactory:
    """Choose the transport that `--transport` names.

    `auto` is native where that is installed, else grpcio. The native front has a guard before it
    unless nobody can reach it who is not trusted by address.
    """
    trust = trust or Trust()
    if kind == "grpcio":
        return _grpcio(tls)
    if _has_native():
        # Here and not above: they can't be imported everywhere.
        if tls is None and trust.trusts_listener(address):
            from headgate.transport.native import NativeTransport  # noqa: PLC0415

            return NativeTransport
        from headgate.transport.guard.transport import GuardedTransport  # noqa: PLC0415

        return partial(GuardedTransport, tls=tls, trust=trust)
    if kind == "native":
        raise ConfigError("the native transport needs pygrpc-native, which is not installed: use --transport grpcio")
    return partial(_grpcio_instead, tls)


def _has_native() -> bool:
    """Say whether there is a wheel for this platform: none for musl or Windows."""
    return find_spec("pygrpc_native") is not None


def _grpcio(tls: TlsFiles | None) -> TransportFactory:
    from headgate.transport.grpcio import GrpcioTransport  # noqa: PLC0415

    return partial(GrpcioTransport, tls=tls)


def _grpcio_instead(tls: TlsFiles | None, endpoint: Serving) -> Transport:
    endpoint.logger.warning("transport_fallback", transport="grpcio", reason="pygrpc-native is not installed")
    return _grpcio(tls)(endpoint)
