"""Identity of the region at the other end of a stream: proved by a certificate, a token, or both.

A peer may speak for the region that its proof belongs to, and for no other. A certificate
belongs to the regions that its names (SANs) say: a DNS name equal to the region's, or the
URI `headgate://region/<region>`; names of other kinds prove nothing. A token belongs to the
region whose line it has in the file; one that all share belongs to any configured peer. Without
either a peer is who it says, which `check_exposure` allows on this machine only.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from structlog.typing import FilteringBoundLogger

from headgate.config.kinds import NAME
from headgate.endpoint.tls import CertificateWatcher, TlsFiles, client_credentials
from headgate.endpoint.tls import server_credentials as following_credentials
from headgate.endpoint.tokens import MAX_TOKEN_CHARS, FollowedTokens, header_of, is_token, owner_of, read_owners
from headgate.endpoint.trust import is_this_machine
from headgate.errors import ConfigError, Forbidden

REGION_URI: Final = "headgate://region/"

_SAN_KINDS: Final = (("DNS", "peer_dns"), ("URI", "peer_uri"), ("email", "peer_email"), ("IP", "peer_ip"))
"""Kinds of names in a certificate, and what grpcio calls them."""

_SHOWN_NAMES: Final = 8
_SHOWN_NAME_CHARS: Final = 100
"""Most characters of a certificate's name in a refusal: enough to recognise it, and short enough to be sent."""


# Tokens


@dataclass(frozen=True, slots=True)
class _RegionTokens:
    """One state of the file."""

    own: str = field(repr=False)
    """Token that this region sends."""
    owners: Mapping[bytes, str | None] = field(repr=False)
    """Digests of all tokens, with the region that each belongs to; None: any peer."""

    def __len__(self) -> int:
        return len(self.owners)


class RegionTokens(FollowedTokens[_RegionTokens]):
    """A file with one token for all regions, or with lines `region=token`. Raises ConfigError at first.

    Several lines for one region, or several shared tokens, are for rotation: all are accepted, and the
    first is what this region sends.
    """

    def __init__(self, path: str, region: str, logger: FilteringBoundLogger) -> None:
        super().__init__(path, logger, lambda path: _read(path, region))

    @property
    def header(self) -> str:
        """Value of `authorization` that this region sends."""
        return f"Bearer {self._tokens.own}"

    def owner_of(self, header: str | bytes | None) -> str | None:
        """The region whose token this header has; None for any peer. Raises Unauthenticated for an unknown one."""
        return owner_of(header, self._tokens.owners, "one that this region's exchange_token_file has")


def _read(path: str, region: str) -> _RegionTokens:
    sendable: list[str] = []

    def split(line: str, at: str) -> tuple[str | None, str]:
        owner, token = _split(line, at)
        if owner in (region, None):
            sendable.append(token)
        return owner, token

    form = "one for all regions, or lines REGION=TOKEN"
    owners = read_owners(_SETTING, path, split, says="which region it is", form=form)
    if None in owners.values() and len(set(owners.values())) > 1:
        raise ConfigError(f"{_SETTING} {path}: holds shared tokens and tokens of regions: use one kind")
    if not sendable:
        raise ConfigError(f"{_SETTING} {path}: no line {region}=TOKEN, and this region has to send one")
    return _RegionTokens(sendable[0], owners)


_SETTING: Final = "exchange_token_file"


def _split(line: str, at: str) -> tuple[str | None, str]:
    """The region, if the line names one, and the token. A token has `=` at its end only, so there is one reading."""
    if is_token(line):
        return None, line
    region, _, token = line.partition("=")
    if not is_token(token):
        raise ConfigError(
            f"{at}: neither a token nor REGION=TOKEN: a token has letters, digits and -._~+/ (= at its end), "
            f"at most {MAX_TOKEN_CHARS} characters"
        )
    try:
        return NAME.parse(region), token
    except ValueError:
        raise ConfigError(f"{at}: not a region before the `=`: expected {NAME.accepts}") from None


# Proofs


@dataclass(frozen=True, slots=True)
class Proof:
    """Proof that the other end of a stream has shown."""

    token_region: str | None = None
    """The region whose token it sent; None where tokens don't tell."""
    names: tuple[str, ...] | None = None
    """Names of its certificate, those that prove nothing with their kind before them; None without TLS."""

    def among(self, regions: Collection[str]) -> frozenset[str]:
        """Return which of these regions it can belong to: all of them where it does not tell."""
        return frozenset(region for region in regions if self._names(region) and self.token_region in (None, region))

    def check(self, region: str) -> None:
        """Check that it may speak for a region. Raises Forbidden, with what was seen."""
        if not self._names(region):
            raise Forbidden(
                f"the certificate does not belong to region {region!r}: it has the names (SAN) {_shown(self.names)}, "
                f"and needs the DNS name {region!r} or the URI {REGION_URI + region}"
            )
        if self.token_region not in (None, region):
            raise Forbidden(f"the token belongs to region {self.token_region!r}, and you speak for {region!r}")

    def _names(self, region: str) -> bool:
        return self.names is None or not {region, REGION_URI + region}.isdisjoint(self.names)


def _names_of(context: Mapping[str, Iterable[bytes]]) -> Iterator[str]:
    """Names of what grpcio's `auth_context()` gives: DNS names and URIs as they are, others with their kind."""
    for kind, field_name in _SAN_KINDS:
        for encoded in context.get(field_name, ()):
            name = encoded.decode("utf-8", "replace")
            proves = kind == ("URI" if "://" in name else "DNS")
            yield name if proves else f"{kind}:{name}"


def _shown(names: Sequence[str] | None) -> str:
    if not names:
        return "(none)"
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(repr(name[:_SHOWN_NAME_CHARS]) for name in names[:_SHOWN_NAMES]) + more


class Security:
    """Proof that this region shows its peers, and proof that it asks them for. Follows the files.

    Raises ConfigError for certificates that can't be used.
    """

    def __init__(
        self, logger: FilteringBoundLogger, tls: TlsFiles | None = None, tokens: RegionTokens | None = None
    ) -> None:
        if tls is not None and tls.client_ca is None:
            raise ConfigError(
                "exchange_tls_cert: needs exchange_tls_ca beside it: regions show each other certificates"
            )
        self.tokens = tokens
        """Token file; the process that holds this runs its `watch`."""
        self._tls = tls
        self._logger = logger
        self._for_channels = CertificateWatcher(tls, logger, client_credentials) if tls is not None else None

    @property
    def header(self) -> str | None:
        """Value of `authorization` to send."""
        return self.tokens.header if self.tokens is not None else None

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """Credentials for a connection that begins now: another object when the files have changed. None: no TLS."""
        return self._for_channels.current() if self._for_channels is not None else None

    def server_credentials(self) -> grpc.ServerCredentials | None:
        """Credentials for a listener; they follow the files by themselves. None: no TLS."""
        return following_credentials(self._tls, self._logger) if self._tls is not None else None

    def proof_of(self, context: Any) -> Proof:
        """Proof that a call of grpcio's shows. Raises Unauthenticated where that is not enough."""
        return Proof(
            self.tokens.owner_of(header_of(context.invocation_metadata())) if self.tokens is not None else None,
            tuple(_names_of(context.auth_context())) if self._tls is not None else None,
        )


# The start


def check_exposure(exchange: str, peers: Iterable[str], *, tls: bool, tokens: bool, insecure: bool) -> str | None:
    """Check that these addresses, ours and those of peers, may be used with this proof of identity.

    Raises ConfigError if a stranger could speak for a region; returns a warning if a stranger could read along.
    """
    outside = [address for address in (exchange, *peers) if not is_this_machine(address)]
    if tls or not outside:
        return None
    where = f"{outside[0]} is reached over a network"
    if tokens:
        return f"{where}, and tokens are sent without TLS: whoever reads along there can speak for a region"
    if insecure:
        return f"{where}, and whoever reaches it can speak for any region (exchange_insecure)"
    raise ConfigError(
        f"exchange: {where}, where anybody could speak for a region: give --exchange-tls-cert, --exchange-tls-key and "
        "--exchange-tls-ca, or --exchange-token-file; or accept it with --exchange-insecure"
    )
