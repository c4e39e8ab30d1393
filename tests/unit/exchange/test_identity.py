"""Which region a token or a certificate belongs to, and where neither is needed. No socket in sight."""

import os
from pathlib import Path
from typing import Any

import pytest
from headgate.config import load_settings
from headgate.config.kinds import Peer
from headgate.endpoint import tokens as token_files
from headgate.endpoint.tls import TlsFiles
from headgate.errors import ConfigError, Forbidden, Unauthenticated
from headgate.exchange.identity import Proof, RegionTokens, Security, check_exposure
from headgate.runtime.access import exchange_security
from structlog.testing import capture_logs

from tests.unit.exchange.two_regions import LOG


def tokens_of(path: Path, text: str, region: str = "us") -> RegionTokens:
    path.write_text(text)
    return RegionTokens(str(path), region, LOG)


# Tokens


def test_a_shared_token_belongs_to_any_peer(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path / "t", "# all regions\nshared-token==\n")
    assert tokens.header == "Bearer shared-token=="
    assert tokens.owner_of("Bearer shared-token==") is None
    assert tokens.owner_of(b"bearer shared-token==") is None
    for wrong in (None, "", "Bearer ", "Bearer other", "shared-token==", "Basic shared-token==", b"\xff"):
        with pytest.raises(Unauthenticated, match="a valid bearer token is needed") as caught:
            tokens.owner_of(wrong)
        assert "shared" not in str(caught.value)


def test_a_regions_token_belongs_to_that_region(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path / "t", "eu=token-of-eu=\nus=token-of-us\nap.south-1=token-of-ap\n")
    assert tokens.header == "Bearer token-of-us"
    assert tokens.owner_of("Bearer token-of-eu=") == "eu"
    assert tokens.owner_of("Bearer token-of-us") == "us"
    assert tokens.owner_of("Bearer token-of-ap") == "ap.south-1"
    with pytest.raises(Unauthenticated):
        tokens.owner_of("Bearer eu=token-of-eu=")


def test_tokens_are_rotated_by_a_second_line(tmp_path: Path) -> None:
    """All are accepted, the first is sent."""
    shared = tokens_of(tmp_path / "t", "new\nold\n")
    assert shared.header == "Bearer new"
    assert shared.owner_of("Bearer old") is None
    assert shared.owner_of("Bearer new") is None
    own = tokens_of(tmp_path / "t", "eu=new-eu\neu=old-eu\nus=new-us\nus=old-us\n")
    assert own.header == "Bearer new-us"
    assert own.owner_of("Bearer old-eu") == own.owner_of("Bearer new-eu") == "eu"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no token: write one for all regions, or lines REGION=TOKEN"),
        ("# eu=secret\n", "holds no token"),
        ("us=secret\ntwo words\n", ":2: neither a token nor REGION=TOKEN"),
        ("us=secret\neu=\n", "holds shared tokens and tokens of regions"),
        ("us=secret\neu=two words\n", ":2: neither a token nor REGION=TOKEN"),
        ("us=secret\n-eu=other\n", ":2: not a region before the `=`: expected 1 to 63 letters"),
        ("us=secret\nshared\n", "holds shared tokens and tokens of regions: use one kind"),
        ("us=secret\neu=secret\n", ":2: another line has this token too"),
        ("eu=secret\nap=other\n", "no line us=TOKEN, and this region has to send one"),
        ("us=" + "s" * 5_000, ":1: neither a token"),
        ("us=t\u00f6ken\n", "a token is ASCII"),
    ],
)
def test_a_file_that_is_none_of_tokens_is_named_and_never_repeated(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tokens_of(tmp_path / "t", text)
    assert str(caught.value).startswith(f"exchange_token_file {tmp_path / 't'}")
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


def test_too_many_tokens_are_another_kind_of_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "MAX_TOKENS", 2)
    with pytest.raises(ConfigError, match="3 tokens, at most 2 are accepted"):
        tokens_of(tmp_path / "t", "a\nb\nc\n")


def test_a_changed_file_is_taken_and_a_bad_one_keeps_what_was(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path / "t", "us=old-us\neu=old-eu\n")

    def change(text: str) -> None:
        (tmp_path / "next").write_text(text)
        os.replace(tmp_path / "next", tmp_path / "t")
        tokens.refresh()

    with capture_logs() as logs:
        change("us=new-us\neu=new-eu\n")
        change("eu=new-eu\n")
    assert tokens.header == "Bearer new-us"
    assert tokens.owner_of("Bearer new-eu") == "eu"
    with pytest.raises(Unauthenticated):
        tokens.owner_of("Bearer old-eu")
    assert [line["event"] for line in logs] == ["tokens_reloaded", "tokens_reload_failed"]
    assert "new-" not in str(logs)


def test_no_token_shows_where_objects_are_shown(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path / "t", "us=secret\n")
    assert "secret" not in repr(tokens) + repr(tokens._tokens)


# Proofs


@pytest.mark.parametrize(
    ("names", "region"),
    [
        (("eu",), "eu"),
        (("other.example", "headgate://region/eu"), "eu"),
        (("eu", "ap"), "ap"),
    ],
)
def test_a_certificate_speaks_for_the_regions_that_it_names(names: tuple[str, ...], region: str) -> None:
    Proof(names=names).check(region)


@pytest.mark.parametrize(
    "names", [(), ("ap",), ("EU",), ("eu.example",), ("headgate://region/ap",), ("headgate://region/eu/x",), ("*",)]
)
def test_and_for_no_other(names: tuple[str, ...]) -> None:
    with pytest.raises(Forbidden) as caught:
        Proof(names=names).check("eu")
    message = str(caught.value)
    assert "needs the DNS name 'eu' or the URI headgate://region/eu" in message
    assert all(repr(name) in message for name in names)
    assert names or "(none)" in message


def test_a_certificate_with_many_names_is_shown_in_part() -> None:
    with pytest.raises(Forbidden) as caught:
        Proof(names=tuple(f"{number}-" + "n" * 300 for number in range(500))).check("eu")
    assert "and 492 more" in str(caught.value)
    assert len(str(caught.value)) < 1_024


def test_a_token_and_a_certificate_must_both_fit() -> None:
    Proof("eu", ("eu",)).check("eu")
    Proof(None, ("eu",)).check("eu")
    with pytest.raises(Forbidden, match="the token belongs to region 'ap', and you speak for 'eu'"):
        Proof("ap", ("eu",)).check("eu")
    with pytest.raises(Forbidden, match="the certificate does not belong to region 'eu'"):
        Proof("eu", ("ap",)).check("eu")


def test_without_either_a_peer_is_who_it_says() -> None:
    Proof().check("eu")


# The start


INSIDE = ["127.0.0.1:8082", "127.9.9.9:1", "localhost:8082", "[::1]:8082", "unix:/run/x.sock", "[::ffff:127.0.0.1]:1"]
OUTSIDE = ["0.0.0.0:8082", "[::]:8082", "10.0.0.1:8082", "eu.example:8082", "localhost.example:1"]


@pytest.mark.parametrize("address", INSIDE)
def test_on_this_machine_nothing_is_needed(address: str) -> None:
    assert check_exposure(address, [address], tls=False, tokens=False, insecure=False) is None


@pytest.mark.parametrize("address", OUTSIDE)
@pytest.mark.parametrize("is_peer", [False, True])
def test_over_a_network_it_does_not_start_with_neither(address: str, is_peer: bool) -> None:
    exchange, peers = ("127.0.0.1:1", ["unix:/s", address]) if is_peer else (address, ["127.0.0.1:1"])

    def check(**given: bool) -> str | None:
        return check_exposure(exchange, peers, **{"tls": False, "tokens": False, "insecure": False, **given})

    with pytest.raises(ConfigError) as caught:
        check()
    assert str(caught.value).startswith(f"exchange: {address} is reached over a network")
    for flag in ("--exchange-tls-cert", "--exchange-token-file", "--exchange-insecure"):
        assert flag in str(caught.value)
    assert check(tls=True) is None
    assert check(tls=True, tokens=True) is None
    assert "tokens are sent without TLS" in (check(tokens=True) or "")
    assert "can speak for any region" in (check(insecure=True) or "")


PEERS = (Peer("eu", "10.0.0.1:8082"),)


def settings(**flags: Any) -> Any:
    return load_settings({"rules": "r", "region": "us", "peer": ["eu=10.0.0.1:8082"], **flags}, {})


def test_settings_say_how_regions_prove_who_they_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="anybody could speak for a region"):
        exchange_security(settings(), PEERS, LOG)
    (tmp_path / "t").write_text("us=one\neu=two\n")
    with capture_logs() as logs:
        security = exchange_security(settings(exchange_token_file=str(tmp_path / "t")), PEERS, LOG)
        assert exchange_security(settings(exchange_insecure="true"), PEERS, LOG).header is None
    assert security.header == "Bearer one"
    assert [line["event"] for line in logs] == ["exchange_exposed"] * 2
    files = {"exchange_tls_cert": "none", "exchange_tls_key": "none", "exchange_tls_ca": "none"}
    with pytest.raises(ConfigError, match="none: No such file"):
        exchange_security(settings(**files), PEERS, LOG)


def test_certificates_are_mutual_or_none() -> None:
    with pytest.raises(ConfigError, match="needs exchange_tls_ca beside it"):
        Security(LOG, TlsFiles("c", "k"))
