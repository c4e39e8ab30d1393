"""Access of callers: the settings about callers, as the listeners take them."""

from collections.abc import Iterable
from dataclasses import replace

from structlog.typing import FilteringBoundLogger

from headgate.address import TcpAddress, parse_address
from headgate.config import Settings
from headgate.config.kinds import Peer
from headgate.endpoint.admins import Admins, AdminTokens
from headgate.endpoint.tls import TlsFiles
from headgate.endpoint.tokens import TokenFile
from headgate.endpoint.trust import is_this_machine
from headgate.exchange.identity import RegionTokens, Security, check_exposure
from headgate.exchange.peer_list import PeerFile, PeerList
from headgate.telemetry.bounded import BoundedLogger
from headgate.transport.callers import Callers, SanList
from headgate.transport.http_access import HttpAccess, Surface
from headgate.transport.http_hosts import HostNames
from headgate.transport.http_listener import HttpEndpoint, HttpLimits


def open_tokens(settings: Settings, logger: FilteringBoundLogger) -> TokenFile | None:
    """The token file, read; raises ConfigError naming what is wrong with it."""
    return TokenFile(str(settings.token_file), logger) if settings.token_file is not None else None


def grpc_callers(settings: Settings, tokens: TokenFile | None) -> Callers:
    """Return who may call over gRPC: tokens that are accepted, and names that a certificate must have."""
    return Callers(tokens, SanList(settings.tls_client_san) if settings.tls_client_san else None)


def http_endpoints(
    settings: Settings, tokens: TokenFile | None, logger: BoundedLogger, max_body_bytes: int
) -> list[HttpEndpoint]:
    """Return the endpoints of HTTP listeners: one for all, or one for callers and one for operators, and those for
    metrics and for debugging where they are asked for.
    """
    own = [address.host for address in map(parse_address, _http_addresses(settings)) if isinstance(address, TcpAddress)]
    hosts = HostNames.of([*settings.http_host, *own])
    access = HttpAccess(Surface.EVERYTHING, tokens, settings.client_ca is not None, hosts)
    limits = HttpLimits()
    limits = replace(limits, max_body_bytes=min(max_body_bytes, limits.max_body_bytes))
    everybody = HttpEndpoint(settings.http, logger, limits, access, int(settings.socket_mode, 8))
    if settings.admin is not None:
        everybody = replace(everybody, access=replace(access, surface=Surface.CALLERS))
    others = (
        (settings.admin, "admin", Surface.OPERATORS),
        (settings.metrics, "metrics", Surface.METRICS),
        (settings.debug, "debug", Surface.DEBUG),
    )
    return [everybody] + [
        replace(everybody, address=address, name=name, access=HttpAccess(surface, hosts=hosts))
        for address, name, surface in others
        if address is not None
    ]


def _http_addresses(settings: Settings) -> list[str]:
    addresses = (settings.http, settings.admin, settings.metrics, settings.debug)
    return [address for address in addresses if address is not None]


def open_admins(settings: Settings, logger: FilteringBoundLogger) -> Admins:
    """Return who may use the admin side over gRPC; raises ConfigError naming what is wrong with the token file."""
    file, names = settings.admin_token_file, settings.admin_tls_client_san
    return Admins(
        AdminTokens(str(file), logger) if file is not None else None,
        settings.admin_tls_client_ca is not None,
        SanList(names).allows if names else None,
    )


def admin_tls(settings: Settings, logger: FilteringBoundLogger) -> TlsFiles | None:
    """None without TLS: then whoever reads the network reads the tokens, and the log says so."""
    cert, key, ca = settings.admin_tls_cert, settings.admin_tls_key, settings.admin_tls_client_ca
    if cert is not None:
        return TlsFiles(str(cert), str(key), str(ca) if ca else None)
    if settings.admin_grpc is not None and not is_this_machine(settings.admin_grpc):
        logger.warning("admin_exposed", address=settings.admin_grpc, reason="tokens cross the network without TLS")
    return None


def check_peers(settings: Settings, peers: Iterable[Peer]) -> str | None:
    """Raises ConfigError where anybody could speak for a region; returns a warning if a stranger could read along."""
    return check_exposure(
        settings.exchange,
        [peer.address for peer in peers],
        tls=settings.exchange_tls_cert is not None,
        tokens=settings.exchange_token_file is not None,
        insecure=settings.exchange_insecure,
    )


def open_peers(settings: Settings, logger: FilteringBoundLogger) -> PeerList:
    """The other regions, as configured; raises ConfigError naming what is wrong with the file."""
    if settings.peer_file is None:
        return PeerList(settings.peer)

    def check(peer: Peer) -> None:
        check_peers(settings, [peer])

    return PeerList(file=PeerFile(str(settings.peer_file), settings.region, check, logger))


def exchange_security(settings: Settings, peers: Iterable[Peer], logger: FilteringBoundLogger) -> Security:
    """Open the proofs of this region and its peers. Raises ConfigError where anybody could speak for a region."""
    cert, key, ca = settings.exchange_tls_cert, settings.exchange_tls_key, settings.exchange_tls_ca
    warning = check_peers(settings, peers)
    if warning is not None:
        logger.warning("exchange_exposed", reason=warning)
    tokens = settings.exchange_token_file
    return Security(
        logger,
        TlsFiles(str(cert), str(key), str(ca)) if cert is not None else None,
        RegionTokens(str(tokens), settings.region, logger) if tokens is not None else None,
    )
