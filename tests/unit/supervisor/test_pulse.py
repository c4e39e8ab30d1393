"""Signs of life: who is silent for too long hangs, and a worker ends with its supervisor whatever it does."""

import signal
import socket
import subprocess
import sys

from headgate.supervisor.backoff import FIRST_S
from headgate.supervisor.channel import Channel, is_beat
from headgate.supervisor.pulse import BEAT_S, MOST_MISSED, MOST_MISSED_STARTING, WorkerPulse

WANTED_S = 5.0
START_S = 1.5
"""What a new worker needs on an idle machine."""


def test_silence_counts_from_the_last_word_and_is_noticed_once() -> None:
    pulse = WorkerPulse()
    assert not any(pulse.check() for _ in range(MOST_MISSED))
    pulse.heard()
    looks = [pulse.check() for _ in range(3 * MOST_MISSED)]
    assert looks.index(True) == MOST_MISSED
    assert looks.count(True) == 1


def test_one_that_is_late_does_not_hang() -> None:
    pulse = WorkerPulse()
    for _ in range(1000):
        assert not any(pulse.check() for _ in range(MOST_MISSED))
        pulse.heard()


def test_one_that_starts_may_be_silent_for_longer() -> None:
    pulse = WorkerPulse()
    looks = [pulse.check(MOST_MISSED_STARTING) for _ in range(2 * MOST_MISSED_STARTING)]
    assert looks.index(True) == MOST_MISSED_STARTING
    assert looks.count(True) == 1


def test_one_that_hangs_is_replaced_in_time() -> None:
    """A word just after a look, then none: the longest that it takes."""
    assert (MOST_MISSED + 1) * BEAT_S + FIRST_S + START_S <= WANTED_S
    assert MOST_MISSED * BEAT_S >= 2.5, "long enough for a loop that is merely busy"


def test_a_sign_of_life_never_waits_for_a_reader() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        channel, reader = Channel(ours), Channel(theirs)
        for _ in range(10_000):
            channel.beat()
        heard = reader.receive()
        assert 0 < len(heard) < 10_000, "what did not fit is not sent"
        assert all(is_beat(message) for message in heard)
        channel.beat()
        assert len(reader.receive()) == 1
        channel.close()


SPINNING = """
import sys
from headgate.supervisor.orphan import end_with_supervisor
end_with_supervisor(int(sys.argv[1]), 0.05)
print("spins", flush=True)
while True:
    pass
"""


def test_one_that_spins_ends_when_its_supervisor_is_gone() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-c", SPINNING, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"spins\n"
        assert process.poll() is None
        ours.close()
        assert process.wait(60) == -signal.SIGKILL
    finally:
        process.kill()
        process.communicate()
