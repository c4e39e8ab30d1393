"""Who may ask: tokens from a file, and names of certificates. No socket in sight."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from headgate.endpoint import tokens as token_files
from headgate.endpoint.tls import names_of_auth_context, names_of_certificate
from headgate.endpoint.tokens import TokenFile, header_of
from headgate.errors import ConfigError
from headgate.transport.callers import SanList


class Log:
    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, **_: Any) -> None:
        self.events.append(event)

    warning = info


def tokens_of(path: Path, text: str) -> tuple[TokenFile, Log]:
    path.write_text(text)
    log = Log()
    return TokenFile(str(path), log), log  # type: ignore[arg-type]


def test_any_token_of_the_file_is_accepted_and_nothing_else(tmp_path: Path) -> None:
    tokens, _ = tokens_of(tmp_path / "t", "# of the proxies\n\n  old-token==\nnew.token\n\n# old-comment\n")
    assert len(tokens) == 2
    for header in ("Bearer old-token==", "bearer new.token", b"Bearer new.token", "BEARER  new.token "):
        for _ in range(2):
            assert tokens.allows(header), header
    for refused in (None, "", "Bearer", "Bearer ", "new.token", "Basic new.token", "Bearer new.toke", "Bearer #"):
        for _ in range(2):
            assert not tokens.allows(refused), refused
    for odd in ("Bearer new.token\udcff", "Bearer \0", "Bearer new.token new.token", b"Bearer \xff"):
        assert not tokens.allows(odd), odd


def test_tokens_themselves_are_not_kept(tmp_path: Path) -> None:
    tokens, _ = tokens_of(tmp_path / "t", "a-secret\n")
    assert not tokens.allows("Bearer a-guess")
    held = repr(vars(tokens._tokens)) + repr(vars(tokens))
    assert "a-secret" not in held
    assert "a-guess" not in held
    assert repr(hashlib.sha256(b"a-secret").digest()) in held


def test_what_shares_the_beginning_of_a_digest_is_not_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_files, "_PREFIX_BYTES", 0)
    tokens, _ = tokens_of(tmp_path / "t", "one\n")
    assert tokens.allows("Bearer one")
    assert not tokens.allows("Bearer two")


def test_remembered_headers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "MAX_ACCEPTED", 3)
    tokens, _ = tokens_of(tmp_path / "t", "one\n")
    for spaces in range(1, 10):
        assert tokens.allows("Bearer" + " " * spaces + "one")
    assert len(tokens._tokens._accepted) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no token"),
        ("# nothing\n\n", "holds no token"),
        ("good\ntwo words\n", ":2: not a bearer token"),
        ("good\nBearer:x\n", ":2: not a bearer token"),
        ("a" * 5000, ":1: not a bearer token"),
        ("tök\n", "ASCII"),
        ("x" * (token_files.MAX_FILE_BYTES + 1), "larger than"),
        ("\n".join(f"t{number}" for number in range(token_files.MAX_TOKENS + 1)), "1001 tokens"),
    ],
)
def test_a_file_that_is_none_of_tokens_is_named_and_never_repeated(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "t"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        TokenFile(str(path), Log())  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"token_file {path}")
    assert reason in str(caught.value)
    assert "two words" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"token_file .*none: No such file"):
        TokenFile(str(tmp_path / "none"), Log())  # type: ignore[arg-type]


def test_a_changed_file_is_taken_and_a_bad_one_keeps_what_was(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tokens, log = tokens_of(path, "old\n")
    assert tokens.allows("Bearer old")
    tokens.refresh()
    assert log.events == []

    def change(text: str) -> None:
        (tmp_path / "next").write_text(text)
        os.replace(tmp_path / "next", path)
        tokens.refresh()

    change("old\nnew\n")
    assert tokens.allows("Bearer old")
    assert tokens.allows("Bearer new")
    change("new\n")
    assert not tokens.allows("Bearer old")
    change("")
    tokens.refresh()
    assert tokens.failures == 1, "one change is told once"
    path.unlink()
    tokens.refresh()
    assert tokens.allows("Bearer new")
    assert tokens.failures == 2
    assert log.events == ["tokens_reloaded"] * 2 + ["tokens_reload_failed"] * 2


@pytest.mark.parametrize(
    ("entries", "allowed", "refused"),
    [
        (["edge.example"], ["edge.example", "EDGE.example"], ["x.edge.example", "edge.example.org", "", "example"]),
        (["*.example"], ["edge.example"], ["example", "a.edge.example", ".example.org", "edge.example.org"]),
        (["spiffe://c/ns/a"], ["spiffe://c/ns/a"], ["spiffe://c/ns/a/b", "spiffe://C/ns/a", "spiffe://c/ns"]),
        (["spiffe://c/ns/*"], ["spiffe://c/ns/a", "spiffe://c/ns/"], ["spiffe://c/other", "spiffe://d/ns/a"]),
        (["10.0.0.1"], ["10.0.0.1"], ["10.0.0.11", "10.0.0"]),
    ],
)
def test_names_of_certificates(entries: list[str], allowed: list[str], refused: list[str]) -> None:
    names = SanList(entries)
    for name in allowed:
        assert names.allows(["stranger", name]), name
    for name in refused:
        assert not names.allows([name]), name
    assert not names.allows([])


def test_names_as_ssl_and_grpcio_give_them() -> None:
    certificate = {"subjectAltName": (("DNS", "a.example"), ("URI", "spiffe://c/a"), ("IP Address", "10.0.0.1"))}
    assert names_of_certificate(certificate) == ["a.example", "spiffe://c/a", "10.0.0.1"]
    assert names_of_certificate({}) == names_of_certificate(None) == []
    context = {"x509_subject_alternative_name": [b"a.example", b"\xff"], "x509_common_name": [b"cn"]}
    assert names_of_auth_context(context) == ["a.example", "\ufffd"]
    assert names_of_auth_context({}) == []


def test_the_header_among_the_metadata() -> None:
    assert header_of((("te", "trailers"), ("authorization", "Bearer x"))) == "Bearer x"
    assert header_of(()) is None
    assert header_of(None) is None
