"""A peer speaks for its own region alone, over real sockets: certificates, tokens, and both while they change."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from headgate.endpoint.tls import TlsFiles
from headgate.exchange import codec
from headgate.exchange.grpc_server import STREAMS_PER_PEER, ExchangeServer
from headgate.exchange.hello import Regions
from headgate.exchange.identity import RegionTokens, Security
from headgate.exchange.messages import Ack, LinkError, Refused
from structlog.testing import capture_logs

from tests.conformance.transport.certificates import Certificate, authority, issued_by
from tests.support.waiting import until
from tests.unit.exchange.two_regions import EU, LOG, Recorder, linked, listening, raw_stream, send

AP = Regions("ap", frozenset({"us"}))


@dataclass
class Pki:
    """An authority, and certificates that it has issued, as files."""

    folder: Path
    ca: Certificate

    def issue(self, file: str, *names: str, by: Certificate | None = None) -> TlsFiles:
        cert, key = issued_by(by or self.ca, file, *names).write(self.folder, "next")
        # As certificates are renewed: one file after the other, each at once.
        for new, ending in ((cert, "crt"), (key, "key")):
            os.replace(new, self.folder / f"{file}.{ending}")
        (self.folder / "ca.crt").write_bytes(self.ca.cert_pem)
        return TlsFiles(*(str(self.folder / name) for name in (f"{file}.crt", f"{file}.key", "ca.crt")))

    def security(self, file: str, *names: str, by: Certificate | None = None) -> Security:
        return Security(LOG, self.issue(file, *names, by=by))


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path, authority("regions"))


# Certificates


@pytest.mark.parametrize("names", [("eu",), ("x.example", "headgate://region/eu"), ("ap", "eu")])
async def test_a_certificate_of_the_region_is_welcome(pki: Pki, names: tuple[str, ...]) -> None:
    receiver = Recorder()
    async with (
        listening(receiver, security=pki.security("us", "us")) as server,
        linked(server.address, security=pki.security("eu", *names)) as link,
    ):
        assert await send(link) == Ack(1, 2)
        assert receiver.received[0][0] == "eu"


async def test_a_certificate_of_another_region_is_not(pki: Pki) -> None:
    """One of a region that is a peer itself: it can't speak for the other."""
    receiver = Recorder()
    regions = Regions("us", frozenset({"eu", "ap"}))
    async with (
        listening(receiver, regions=regions, security=pki.security("us", "us")) as server,
        linked(server.address, security=pki.security("ap", "ap", "headgate://region/ap")) as link,
    ):
        with pytest.raises(
            Refused, match="PERMISSION_DENIED: the certificate does not belong to region 'eu'"
        ) as caught:
            await send(link)
        assert "it has the names (SAN) 'ap', 'headgate://region/ap', and needs the DNS name 'eu'" in str(caught.value)
        assert (receiver.received, server.stats.accepted) == ([], 0)


@pytest.mark.parametrize("name", ["email:eu", "URI:eu", "DNS:headgate://region/eu"])
async def test_names_of_other_kinds_prove_no_region(pki: Pki, name: str) -> None:
    """An authority that gives out addresses of people, or whatever it is asked for in a URI, gives out no regions."""
    async with (
        listening(security=pki.security("us", "us")) as server,
        linked(server.address, security=pki.security("eu", name, "x.example")) as link,
    ):
        with pytest.raises(
            Refused, match="PERMISSION_DENIED: the certificate does not belong to region 'eu'"
        ) as caught:
            await send(link)
        assert "it has the names (SAN) " in str(caught.value)
        assert repr(name) in str(caught.value)


@pytest.mark.parametrize("kind", ["another authority's", "none"])
async def test_who_has_no_certificate_of_the_authority_does_not_get_in(pki: Pki, kind: str) -> None:
    stranger = pki.security("eu", "eu", by=authority("other")) if kind != "none" else Security(LOG)
    async with (
        listening(security=pki.security("us", "us")) as server,
        linked(server.address, security=stranger) as link,
    ):
        with pytest.raises(LinkError, match="UNAVAILABLE"):
            await send(link)
        assert server.stats.accepted == 0


async def test_a_listener_with_another_regions_certificate_is_not_told_anything(pki: Pki) -> None:
    receiver = Recorder()
    async with (
        listening(receiver, security=pki.security("ap", "ap", "headgate://region/us")) as server,
        linked(server.address, security=pki.security("eu", "eu")) as link,
    ):
        with pytest.raises(LinkError, match="UNAVAILABLE"):
            await send(link)
        assert server.stats.streams == server.stats.accepted == 0


async def test_a_renewed_certificate_is_shown_without_a_restart(pki: Pki) -> None:
    """By the side that connects: it is a new stream, though nothing was wrong with the old one."""
    async with (
        listening(security=pki.security("us", "us")) as server,
        linked(server.address, security=pki.security("eu", "eu")) as link,
    ):
        await send(link, 1)
        pki.issue("eu", "eu")
        assert await send(link, 2) == Ack(2, 2)
        assert server.stats.accepted == 2
        pki.issue("eu", "ap")
        with pytest.raises(Refused, match="PERMISSION_DENIED"):
            await send(link, 3)
        pki.issue("eu", "eu")
        assert await send(link, 3) == Ack(3, 2)


async def test_a_listeners_renewed_certificate_is_shown_without_a_restart(pki: Pki) -> None:
    async with listening(security=pki.security("us", "us")) as server:
        async with linked(server.address, security=pki.security("eu", "eu")) as link:
            await send(link)
        pki.issue("us", "us-2")
        async with linked(server.address, to="us", security=pki.security("eu", "eu")) as link:
            with pytest.raises(LinkError, match="UNAVAILABLE"):
                await send(link)
            pki.issue("us", "us")
            assert await send(link) == Ack(1, 2)


async def test_half_a_renewal_keeps_the_certificate_in_use(pki: Pki) -> None:
    async with (
        listening(security=pki.security("us", "us")) as server,
        linked(server.address, security=pki.security("eu", "eu")) as link,
    ):
        await send(link, 1)
        (pki.folder / "eu.key").write_bytes(pki.ca.key_pem)
        assert await send(link, 2) == Ack(2, 2)
        assert server.stats.accepted == 1


# Tokens


def tokens(path: Path, region: str, text: str) -> Security:
    path.write_text(text)
    return Security(LOG, tokens=RegionTokens(str(path), region, LOG))


async def test_a_shared_token_makes_a_peer_the_one_that_it_says_it_is(tmp_path: Path) -> None:
    receiver = Recorder()
    async with (
        listening(receiver, security=tokens(tmp_path / "us", "us", "shared")) as server,
        linked(server.address, security=tokens(tmp_path / "eu", "eu", "shared")) as link,
        linked(server.address, security=tokens(tmp_path / "ap", "ap", "shared"), regions=AP) as other,
    ):
        assert await send(link) == Ack(1, 2)
        assert receiver.received[0][0] == "eu"
        with pytest.raises(Refused, match="FAILED_PRECONDITION: 'ap' is no peer"):
            await send(other)


@pytest.mark.parametrize("theirs", ["wrong", "eu=wrong", None])
@pytest.mark.parametrize("ours", ["secret-one", "us=secret-one\neu=secret-two"])
async def test_a_wrong_token_or_none_is_refused_and_none_is_shown(
    tmp_path: Path, theirs: str | None, ours: str
) -> None:
    security = Security(LOG) if theirs is None else tokens(tmp_path / "eu", "eu", theirs)
    with capture_logs() as logs:
        async with listening(security=tokens(tmp_path / "us", "us", ours)) as server:
            async with linked(server.address, security=security) as link:
                with pytest.raises(Refused, match="UNAUTHENTICATED: a valid bearer token is needed") as caught:
                    await send(link)
            assert server.stats.refused == {"unauthenticated": 1}
    assert "exchange_stream_ended" in str(logs)
    for secret in ("secret-one", "secret-two", "wrong"):
        assert secret not in str(logs) + str(caught.value)


async def test_who_has_no_token_is_refused_before_he_says_anything(tmp_path: Path) -> None:
    async with listening(security=tokens(tmp_path / "us", "us", "secret")) as server, raw_stream(server) as call:
        assert (await call.code()).name == "UNAUTHENTICATED"


async def test_the_token_of_another_region_is_refused_and_both_are_named(tmp_path: Path) -> None:
    receiver = Recorder()
    ours = "us=one\neu=two\nap=three"
    async with (
        listening(
            receiver, regions=Regions("us", frozenset({"eu", "ap"})), security=tokens(tmp_path / "us", "us", ours)
        ) as server,
        linked(server.address, security=tokens(tmp_path / "eu", "eu", "eu=three")) as link,
    ):
        with pytest.raises(
            Refused, match="PERMISSION_DENIED: the token belongs to region 'ap', and you speak for 'eu'"
        ):
            await send(link)
        assert (receiver.received, server.stats.accepted) == ([], 0)
        async with linked(server.address, security=tokens(tmp_path / "eu", "eu", "eu=two")) as right:
            assert await send(right) == Ack(1, 2)


@pytest.mark.parametrize("proof", ["token", "certificate"])
async def test_streams_without_a_hello_are_of_the_region_that_opened_them(tmp_path: Path, pki: Pki, proof: str) -> None:
    """However many one peer opens and says nothing on: there is room for the others'."""
    lines = "us=one\neu=two\nap=three"

    def security(region: str) -> Security:
        return pki.security(region, region) if proof == "certificate" else tokens(tmp_path / region, region, lines)

    regions = Regions("us", frozenset({"eu", "ap"}))
    async with listening(regions=regions, security=security("us")) as server, AsyncExitStack() as stack:
        credentials, header = security("eu").channel_credentials(), security("eu").header
        for _ in range(3 * STREAMS_PER_PEER):
            await stack.enter_async_context(silent_stream(server, credentials, header))
        await until(lambda: server.stats.streams == STREAMS_PER_PEER, "its streams to be open")
        await until(lambda: server.stats.refused["unavailable"] == 2 * STREAMS_PER_PEER, "the others to be refused")
        async with linked(server.address, security=security("ap"), regions=AP) as link:
            assert await send(link) == Ack(1, 2)


@asynccontextmanager
async def silent_stream(
    server: ExchangeServer, credentials: grpc.ChannelCredentials | None, header: str | None
) -> AsyncIterator[None]:
    """A stream on a connection of its own, on which nothing is said."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", "us")]
    metadata = (("authorization", header),) if header is not None else ()
    channel = (
        grpc.aio.insecure_channel(server.address, options=options)
        if credentials is None
        else grpc.aio.secure_channel(server.address, credentials, options=options)
    )
    async with channel:
        call: Any = channel.stream_stream(codec.METHOD)(metadata=metadata)
        await channel.channel_ready()
        yield
        call.cancel()


async def test_tokens_are_rotated_without_a_restart(tmp_path: Path) -> None:
    """One that is taken back ends the stream that was begun with it, at its next batch."""
    us, eu = tokens(tmp_path / "us", "us", "old"), tokens(tmp_path / "eu", "eu", "old")
    assert us.tokens is not None
    assert eu.tokens is not None
    receiver = Recorder()
    async with listening(receiver, security=us) as server, linked(server.address, security=eu) as link:
        await send(link, 1)
        _replace(tmp_path / "us", "new\nold")
        us.tokens.refresh()
        assert await send(link, 2) == Ack(2, 2)
        _replace(tmp_path / "eu", "new")
        eu.tokens.refresh()
        assert await send(link, 3) == Ack(3, 2)
        assert server.stats.accepted == 2, "the new token is shown on a new stream"
        _replace(tmp_path / "us", "newer")
        us.tokens.refresh()
        with pytest.raises(Refused, match="UNAUTHENTICATED"):
            await send(link, 4)
        assert [batch.number for _, batch in receiver.received] == [1, 2, 3]


def _replace(path: Path, text: str) -> None:
    path.with_suffix(".next").write_text(text)
    os.replace(path.with_suffix(".next"), path)


async def test_where_both_are_asked_for_both_must_fit(tmp_path: Path, pki: Pki) -> None:
    def both(region: str, name: str, token: str) -> Security:
        path = tmp_path / f"{region}-{name}-tokens"
        path.write_text(token)
        return Security(LOG, pki.issue(name, name), RegionTokens(str(path), region, LOG))

    async with listening(security=both("us", "us", "us=one\neu=two")) as server:
        async with linked(server.address, security=both("eu", "eu", "eu=two")) as link:
            assert await send(link) == Ack(1, 2)
        async with linked(server.address, security=both("eu", "ap", "eu=two")) as link:
            with pytest.raises(Refused, match="PERMISSION_DENIED: the certificate"):
                await send(link)
        async with linked(server.address, security=both("eu", "eu", "eu=one")) as link:
            with pytest.raises(Refused, match="PERMISSION_DENIED: the token belongs to region 'us'"):
                await send(link)
        async with linked(server.address, security=pki.security("eu", "eu"), regions=EU) as link:
            with pytest.raises(Refused, match="UNAUTHENTICATED"):
                await send(link)
