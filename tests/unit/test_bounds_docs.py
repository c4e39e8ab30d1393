"""The bounds that docs/security.md and docs/guard.md state in numbers are those of the code."""

import re

import pytest
from headgate.cuts import service as cuts
from headgate.decision_log import reading
from headgate.exchange import codec, fill, grpc_server, judging, pace, receiver
from headgate.exchange.grpc_server import StreamBounds
from headgate.origin import region_map
from headgate.reservations import open_count
from headgate.transport import fallback, health, http_connections
from headgate.transport.call_order import TURN_US
from headgate.transport.guard import guard, header_block, messages, open_calls, retirement, share, tls_relay
from headgate.transport.guard import inspector as guard_inspector
from headgate.transport.guard.frames import MAX_FRAME_BYTES
from headgate.transport.http_listener import PIECE_BYTES, HttpLimits
from headgate.transport.http_share import SHARES, RequestKind

from tests.support.source import ROOT

HTTP = HttpLimits()
MIB = 1024 * 1024

SECURITY = [
    f"{HTTP.max_body_bytes // 1024} KiB over HTTP",
    f"{HTTP.max_connections} connections on each listener, {HTTP.max_connections_per_address} from one address",
    f"{http_connections.MOST_SILENT} that have said nothing yet, and {http_connections.MOST_PROBES} whose first words",
    f"{PIECE_BYTES // 1024} KiB are held, for {HTTP.request_timeout_s:.0f} s",
    f"of more than {fill.MAX_FILL_BYTES // 1024} KiB",
    f"more than {codec.MAX_ENTRIES:,} entries",
    f"more than {codec.MAX_BATCH_BYTES // MIB} MiB",
    f"{grpc_server.SPARE_CONNECTIONS} connections beside those",
    f"{grpc_server.HANDSHAKE_TIMEOUT_MS // 1000} s to begin to speak TLS",
    f"{grpc_server.IDLE_TIMEOUT_MS // 1000} s to begin a stream",
    f"{StreamBounds().hello_s:.0f} s for the greeting, {StreamBounds().silence_s / 60:.0f} minutes between batches",
    f"{judging.RESETS_AT_ONCE:,} keys at once and {judging.RESETS_PER_S:.0f} a second",
    f"each at most once in {judging.RESET_AGAIN_S:.0f} s",
    f"numbered up to {judging.FUTURE_MS // 1000} s ahead",
    f"{region_map.MOST_TOLD:,} places of their own",
    f"{pace.ENTRIES_PER_S:,} entries and {pace.BYTES_PER_S // MIB} MiB a second",
    f"four times in {receiver.WALKS_MS // 1000} s at most",
    f"within {reading.DEADLINE_S:.0f} s each",
    f"may have {open_count.MOST_OPEN:,} of them at a node",
    f"{fallback.TAKEN_BYTES / fallback.PAUSE_S / 1000:.0f} KB a second".replace("51 KB", "50 KB"),
]

GUARD = [
    f"on all connections together | {open_calls.FRONT_CALLS} |",
    f"{header_block.MAX_HEADER_BLOCK_BYTES // 1024} KiB as sent, {header_block.MAX_HEADER_BLOCK_FRAMES} frames",
    f"| frames | {MAX_FRAME_BYTES // 1024} KiB | GOAWAY |",
    f"| health Watch streams | {health.MAX_WATCHERS}, and {health.MAX_WATCHERS_EACH} of one address |",
    f"with {guard_inspector.LARGE_BYTES} bytes of a message or more | 0 |",
    f"there is no place | {1 + guard_inspector.REFUSED_STEPS}: an answered call pays for two |",
    f"may not begin more than about {messages.MAX_STEPS_PER_FRAME} |",
    f"| {messages.PART_STEPS}, and 1 for each {messages._STEP_BYTES // 1024} KiB unpacked; it counts as 1 KiB",
    f"{tls_relay.RECORDS_PER_STEP} records of TLS in one read | 1 |",
    f"takes {share.SLICE_STEPS} steps at most, and all together {share.TURN_STEPS}",
    f"Up to {share.LEAST_STEPS} steps of an address",
    f"New connections ({guard.ACCEPT_STEPS} steps) and",
    f"answered of a TLS handshake ({tls_relay.HANDSHAKE_STEPS} each time",
    f"{share.FIRST_STEPS} steps at its beginning, {share.STEPS_PER_ANSWER} with each answer, "
    f"{share.STEPS_PER_TICK / guard.TICK_S:.0f} each second, {share.MAX_STEPS} at most",
    f"{share.SLOWED_TICKS * guard.TICK_S:.0f} s, in which no call of its was answered",
    f"closed {retirement.RETIRE_S:.0f} s later, or after {retirement.RETIRE_MAX_S:.0f} s",
    f"{fallback.TAKEN_BYTES} bytes every {fallback.PAUSE_S * 1000:.0f} ms",
]


def page(name: str) -> str:
    """Its text in one line."""
    return re.sub(r"\s+", " ", (ROOT / "docs" / name).read_text())


@pytest.mark.parametrize("said", SECURITY)
def test_what_security_says_in_numbers(said: str) -> None:
    assert said in page("security.md")


@pytest.mark.parametrize("said", GUARD)
def test_what_the_guard_says_in_numbers(said: str) -> None:
    assert said in page("guard.md")


def test_what_is_said_in_words() -> None:
    security, guarding = page("security.md"), page("guard.md")
    assert (grpc_server.STREAMS_PER_PEER, receiver.MOST_WALKS, reading.MOST_WAITING) == (4, 4, 4)
    assert "four streams per peer" in security
    assert "four wait in line, others get 503" in security
    assert (receiver.LONGEST_FILL_MS, StreamBounds().age_s) == (600_000, 3_600)
    assert "for ten minutes from the first on" in security
    assert "an hour for a stream" in security
    assert judging.MOST_COUNTED == 2**44
    assert "At most 2^44 per key and window" in security
    assert (cuts.ROUNDS, cuts.HEARD_S) == (2, 1.5)
    assert "after some four seconds" in security
    assert SHARES == {RequestKind.REQUEST: 4, RequestKind.PROBE: 4, RequestKind.SCRAPE: 16}
    assert "take a quarter of the loop's time at most" in security
    assert "a quarter of their own, and so have scrapes" in security
    assert "a sixteenth" in security
    assert HTTP.scrape_kept_s == 1
    assert TURN_US == 500
    assert "turns of half a millisecond" in security
    assert guard.UNFINISHED_SHARE == 16
    assert "a sixteenth of it, or two messages" in guarding
    assert open_calls.PLACES_AT_ONCE == 8
    assert "places for eight more calls" in guarding
