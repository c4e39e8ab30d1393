"""Which transport serves: the fast one where it can, the portable one where it can't."""

from functools import partial
from importlib.util import find_spec
from typing import Literal

from structlog.typing import FilteringBoundLogger

from headgate.errors import ConfigError
from headgate.transport.callers import EVERYBODY, Callers
from headgate.transport.interface import Handler, Transport, TransportFactory, TransportLimits
from headgate.transport.socketfile import OWNER_ONLY
from headgate.transport.tls import TlsFiles

TransportKind = Literal["auto", "native", "grpcio"]


def choose_transport(
    kind: TransportKind, tls: TlsFiles | None = None, callers: Callers = EVERYBODY
) -> TransportFactory:
    """What `--transport` means: `auto` is native without TLS and grpcio with it."""
    if kind == "grpcio" or (kind == "auto" and tls is not None):
        return _grpcio(tls, callers)
    if tls is not None:
        raise ConfigError("the native transport has no TLS: use --transport grpcio or auto")
    if _has_native():
        # Here and not above: it can't be imported everywhere.
        from headgate.transport.native import NativeTransport  # noqa: PLC0415

        return partial(NativeTransport, callers=callers)
    if kind == "native":
        raise ConfigError("the native transport needs pygrpc-native, which is not installed: use --transport grpcio")
    return partial(_grpcio_instead, callers)


def _has_native() -> bool:
    """Whether there is a wheel for this platform: none for musl or Windows."""
    return find_spec("pygrpc_native") is not None


def _grpcio(tls: TlsFiles | None, callers: Callers) -> TransportFactory:
    from headgate.transport.grpcio import GrpcioTransport  # noqa: PLC0415

    return partial(GrpcioTransport, tls=tls, callers=callers)


def _grpcio_instead(
    callers: Callers,
    address: str,
    handler: Handler,
    *,
    limits: TransportLimits,
    logger: FilteringBoundLogger,
    reuse_port: bool = False,
    socket_mode: int = OWNER_ONLY,
) -> Transport:
    logger.warning("transport_fallback", transport="grpcio", reason="pygrpc-native is not installed")
    make = _grpcio(None, callers)
    return make(address, handler, limits=limits, logger=logger, reuse_port=reuse_port, socket_mode=socket_mode)
