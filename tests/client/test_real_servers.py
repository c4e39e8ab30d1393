"""Both clients with a real `headgate serve`: TCP, Unix sockets, TLS, tokens, many callers at a time."""

import asyncio
import concurrent.futures
import threading
from pathlib import Path

import pytest
from headgate_client import AsyncHeadgate, Code, Descriptor, Headgate, RateLimitError, Tls
from headgate_client.tls_mistake import TlsMistake

from tests.client.support import PATIENT_S, Make, MakeBoth
from tests.conformance.transport.certificates import authority, issued_by
from tests.support import headgate as servers
from tests.support.headgate import serve
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def user(request: pytest.FixtureRequest) -> str:
    """One whom no other test has."""
    return str(request.node.name)


def test_five_are_allowed_and_the_sixth_is_told_when(headgate: servers.Headgate, make: Make, user: str) -> None:
    client = make(headgate.grpc, "edge", timeout=PATIENT_S)
    seen = [client.check(user=user) for _ in range(6)]
    assert [decision.allowed for decision in seen] == [True] * 5 + [False]
    assert [decision.remaining for decision in seen] == [4, 3, 2, 1, 0, 0]
    assert {(d.limit, d.degraded, d.error) for d in seen} == {(5, False, None)}
    assert seen[5].retry_after > 0
    assert [status.code for status in seen[5].statuses] == [Code.OVER_LIMIT]
    assert client.counters["allowed"] == 5


def test_several_descriptors_are_all_or_nothing(headgate: servers.Headgate, make: Make, user: str) -> None:
    client = make(headgate.grpc, "edge", timeout=PATIENT_S)
    both = [{"bulk": user}, {"user": user}]
    assert client.check(both, cost=5)
    denied = client.check(both, cost=1)
    assert [status.code for status in denied.statuses] == [Code.OK, Code.OVER_LIMIT]
    looked = client.check([{"bulk": user}], cost=0)
    assert looked.remaining == 1_000_000 - 5, "what was denied is charged nowhere"
    assert client.check([Descriptor({"bulk": user}, hits=2)]).remaining == 1_000_000 - 7


def test_no_rule_is_no_limit(headgate: servers.Headgate, make: Make) -> None:
    decision = make(headgate.grpc, "edge", timeout=PATIENT_S).check(nobody="knows")
    assert (decision.allowed, decision.limit, decision.remaining, decision.degraded) == (True, None, None, False)


def test_what_the_server_refuses_is_an_error_by_its_name(headgate: servers.Headgate, make: Make) -> None:
    client = make(headgate.grpc, "edge", timeout=PATIENT_S)
    too_many = [{f"key{n}": "x" for n in range(1000)}]
    decision = client.check(too_many)
    assert decision.allowed
    assert decision.error is not None
    assert decision.error.status == "INVALID_ARGUMENT"
    with pytest.raises(RateLimitError, match="INVALID_ARGUMENT"):
        client.check(too_many, on_error="raise")


def test_a_unix_socket(rules: Path, tmp_path: Path, make_both: MakeBoth) -> None:
    socket = f"unix:{tmp_path}/h.sock"
    with serve(rules, grpc=socket):
        clients = make_both(socket, "edge", timeout=PATIENT_S, on_error="raise")
        assert [client.check(user="alice").remaining for client in clients] == [4, 3]


def test_tls_with_certificates_of_both_sides_and_a_token(rules: Path, tmp_path: Path, make_both: MakeBoth) -> None:
    ca = authority("ca")
    ca_file, _ = ca.write(tmp_path, "ca")
    cert, key = issued_by(ca, "server").write(tmp_path, "server")
    my_cert, my_key = issued_by(ca, "client", "billing").write(tmp_path, "client")
    (tmp_path / "tokens").write_text("open-sesame\n")
    flags = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca_file, "--token-file", str(tmp_path / "tokens"))
    with serve(rules, *flags) as headgate:
        mine = Tls(ca=ca_file, cert=my_cert, key=my_key, server_name="localhost")
        tokens: list[str] = []
        options = {"timeout": PATIENT_S, "connect_timeout": PATIENT_S}
        for client in make_both(headgate.grpc, "edge", tls=mine, token=tokens.pop, on_error="raise", **options):
            tokens[:] = ["open-sesame", "wrong"]
            with pytest.raises(RateLimitError, match="UNAUTHENTICATED"):
                client.check(user="alice")
            assert client.check(user="alice").limit == 5, "the function is asked for every call"
        no_certificate = Tls(ca=ca_file, server_name="localhost")
        other_ca, _ = authority("other").write(tmp_path, "other")
        other_cert, other_key = issued_by(authority("x"), "client", "billing").write(tmp_path, "stranger")
        mistakes = {
            TlsMistake.NO_TLS: None,
            TlsMistake.NO_CERTIFICATE: no_certificate,
            TlsMistake.OTHER_CERTIFICATE: Tls(ca_file, other_cert, other_key, "localhost"),
            TlsMistake.OTHER_AUTHORITY: Tls(other_ca, my_cert, my_key, "localhost"),
            TlsMistake.OTHER_NAME: Tls(ca_file, my_cert, my_key, "elsewhere"),
        }
        for mistake, tls in mistakes.items():
            for stranger in make_both(headgate.grpc, "edge", tls=tls, token="open-sesame", **options):  # noqa: S106
                assert mistake.value in str(stranger.check(user="alice").error)
    with serve(rules) as plain:
        for client in make_both(plain.grpc, "edge", tls=no_certificate, **options):
            assert TlsMistake.NOT_SERVED.value in str(client.check(user="alice").error)


async def test_a_thousand_callers_at_a_time_get_five_and_share_a_connection(
    headgate: servers.Headgate, user: str
) -> None:
    async with TcpProxy(int(headgate.grpc.rpartition(":")[2])) as proxy:
        async with AsyncHeadgate(proxy.address, "edge", timeout=PATIENT_S, connect_timeout=PATIENT_S) as client:
            seen = await asyncio.gather(*(client.check(user=user) for _ in range(1000)))
            assert sum(decision.allowed for decision in seen) == 5
            assert not any(decision.degraded for decision in seen)
            assert sum(client.counters.values()) == 1000
        assert proxy.connections == 1
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_threads_share_a_client_and_none_of_its_own_is_left(headgate: servers.Headgate, user: str) -> None:
    before = set(threading.enumerate())
    client = Headgate(headgate.grpc, "edge", timeout=PATIENT_S, connect_timeout=PATIENT_S)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        seen = list(pool.map(lambda _: client.check(user=user), range(200)))
    assert sum(decision.allowed for decision in seen) == 5
    client.close()
    client.close()
    wait_until(lambda: set(threading.enumerate()) <= before, "the threads that watched it connect")


def test_a_client_that_is_closed_answers_by_its_policy(headgate: servers.Headgate, make: Make, user: str) -> None:
    for client in (make(headgate.grpc, "edge"), make(headgate.grpc, "edge", timeout=PATIENT_S)):
        with client:
            pass
        for _ in range(3):
            decision = client.check(user=user)
            assert decision.allowed
            assert str(decision.error) == "CLOSED: this client is closed"


def test_one_asyncio_client_serves_one_loop_after_another(headgate: servers.Headgate, user: str) -> None:
    client = AsyncHeadgate(headgate.grpc, "edge", timeout=PATIENT_S, connect_timeout=PATIENT_S)

    async def check() -> int | None:
        return (await client.check(user=user)).remaining

    assert [asyncio.run(check()) for _ in range(3)] == [4, 3, 2]


def test_the_first_clients_work_and_warn(headgate: servers.Headgate, user: str) -> None:
    from headgate_client import AsyncClient, Client

    with (
        pytest.warns(DeprecationWarning, match=r"Client goes with the next release: use headgate_client\.Headgate"),
        Client(headgate.grpc, timeout_s=PATIENT_S) as client,
    ):
        assert client.should_rate_limit("edge", [{"user": user}]).admitted

    async def ask() -> bool:
        async with AsyncClient(headgate.grpc, timeout_s=PATIENT_S) as client:
            return (await client.should_rate_limit("edge", [{"user": user}], 5)).admitted

    with pytest.warns(DeprecationWarning, match=r"AsyncClient goes .* use headgate_client\.AsyncHeadgate"):
        assert not asyncio.run(ask())
