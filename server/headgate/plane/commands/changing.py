"""Changes that commands send: in as many calls as they take, and what came of them."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from headgate import plain_json
from headgate.console.output import EXIT_FAILED, EXIT_OK, printable, warn, write
from headgate.errors import ConfigError
from headgate.limiter.rule_name import steps_text
from headgate.plane.codec import decode_path, encode_change
from headgate.plane.commands.asking import ask, wait_for_followers
from headgate.plane.commands.stages import does_follow, follow_rollouts, rollout_json, rollout_line
from headgate.plane.entry import MOST_CHANGES, RuleChange
from headgate.v1 import rules_pb2 as pb

MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Bytes of rules in one call, well below the largest message."""


def batches(changes: Sequence[RuleChange], *, now: bool) -> Iterator[list[pb.RuleChange]]:
    """Split changes into calls; what is deleted goes last, so that no caller is without a rule meanwhile.

    Changes of one domain stay together, unless all of them go at once: a rollout takes them as a whole. Raises
    ConfigError where that is too much for one call.
    """
    batch: list[pb.RuleChange] = []
    size = 0
    for group in _together(changes, now=now):
        group_size = sum(message.ByteSize() for message in group)
        if len(group) > MOST_CHANGES or group_size > MAX_BATCH_BYTES:
            raise ConfigError(
                f"{group[0].domain}: {len(group)} changes of {group_size} bytes: a rollout takes {MOST_CHANGES}, and "
                f"{MAX_BATCH_BYTES} bytes; make several, or say --now"
            )
        if batch and (len(batch) + len(group) > MOST_CHANGES or size + group_size > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch += group
        size += group_size
    if batch:
        yield batch


def _together(changes: Sequence[RuleChange], *, now: bool) -> Iterator[list[pb.RuleChange]]:
    """Changes that must not be torn apart."""
    ordered = sorted(changes, key=lambda change: change.rule is None)
    if now:
        yield from ([encode_change(change)] for change in ordered)
        return
    by_domain: dict[str, list[pb.RuleChange]] = {}
    for change in ordered:
        by_domain.setdefault(change.domain, []).append(encode_change(change))
    yield from by_domain.values()


def send(args: argparse.Namespace, changes: Sequence[RuleChange], expect: str) -> pb.ChangeResponse:
    """Send changes, in several calls where they are too many for one; the answer to the last, or the first refusal."""
    answer, sent, rollouts = pb.ChangeResponse(), 0, list[pb.Rollout]()
    for batch in list(batches(changes, now=args.now)):
        request = pb.ChangeRequest(
            changes=batch, why=args.why, expect=expect, now=args.now, expect_denials=args.expect_denials
        )
        answer = ask(args, "Change", request, pb.ChangeResponse)
        expect = answer.position.version
        if answer.problems:
            break
        sent += answer.changed
        rollouts += answer.rollouts
        if len(changes) > len(batch):
            warn(f"{sent} of {len(changes)} changes made")
    answer.changed = sent
    del answer.rollouts[:]
    answer.rollouts.extend(rollouts)
    return answer


def conclude(args: argparse.Namespace, answer: pb.ChangeResponse) -> int:
    """Print what came of a change, and wait until it is in force, or until its rollouts have ended; the exit status."""
    if answer.problems:
        return _refused(args, answer)
    followers, behind, waited_s = wait_for_followers(args, answer.position) if answer.changed else (0, [], 0.0)
    follows = does_follow(args) and bool(answer.rollouts)
    shown = {
        "index": answer.position.index,
        "version": answer.position.version,
        "changed": answer.changed,
        "followers": followers,
        "behind": [state.name for state in behind],
        "waited_s": round(waited_s, 3),
        "rollouts": list(map(rollout_json, answer.rollouts)),
    }
    if args.json:
        write(plain_json.dumps(shown, indent=None if follows else 2))
    elif not answer.changed:
        write(f"nothing to change: entry {answer.position.index}, version {answer.position.version}")
    else:
        write(f"entry {answer.position.index}, version {answer.position.version}: {answer.changed} changes")
        write(_force(followers, behind, waited_s))
    if follows:
        return max(follow_rollouts(args, answer.rollouts), EXIT_FAILED if behind else EXIT_OK)
    for one in () if args.json else answer.rollouts:
        write(printable(rollout_line(one)))
    return EXIT_FAILED if behind else EXIT_OK


def _force(followers: int, behind: Sequence[pb.Follower], waited_s: float) -> str:
    if not waited_s:
        return "not waited for"
    if not behind:
        return f"in force on all {followers} followers after {waited_s:.1f} s" if followers else "nobody follows yet"
    named = ", ".join(_why_behind(state) for state in behind[:20])
    return f"not in force after {waited_s:.1f} s on {len(behind)}: {named}"


def _why_behind(state: pb.Follower) -> str:
    refused = "; ".join(f"refuses {item.domain}: {item.reason}" for item in state.refused)
    return printable(f"{state.name} (entry {state.has.index}{', ' + refused if refused else ''})")


def _refused(args: argparse.Namespace, answer: pb.ChangeResponse) -> int:
    problems = [
        {"domain": one.domain, "rule": steps_text(decode_path(one.path)), "reason": one.reason}
        for one in answer.problems
    ]
    if args.json:
        write(plain_json.dumps({"changed": answer.changed, "problems": problems}, indent=2))
    else:
        for one in problems:
            write(printable(f"{one['domain']}: {one['rule']}: {one['reason']}"))
        write(f"refused; {answer.changed or 'no'} changes were made")
    return EXIT_FAILED
