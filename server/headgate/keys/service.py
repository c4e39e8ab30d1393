"""`headgate.v1.Keys`: look at limit keys, and change what they are decided by.

Whoever asks has been identified; every change is written to the log with who, what and why before it is answered. What
is bounded: one override per limit key, 10,000 in a region, each of a size and a life. No decision waits for anything
here.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.endpoint.admins import AdminMethod, Operator, admin_method
from headgate.errors import NotReady, TooLarge
from headgate.keys import overriding, resetting, view
from headgate.keys.naming import KeyNames, NamedKey, describe, entries_of, key_message, limit_message
from headgate.keys.peek_key import PeekKey
from headgate.limiter.blocks import Blocks
from headgate.limiter.engine import Engine
from headgate.limiter.limit import MILLION
from headgate.limiter.overrides import Override, Overrides
from headgate.origin.interface import Origin, OriginError, OriginTimeout, owners_of
from headgate.origin.region_map import MOST_ENTRIES, MapEntry, MapState
from headgate.region.engine import RegionalEngine
from headgate.region.node import RegionNode
from headgate.region.region_map import RegionMapReplica
from headgate.v1 import keys_pb2 as pb

SERVICE: Final = "headgate.v1.Keys"
PEEK_TIMEOUT_S: Final = 1.0
"""For the shard to show a record: somebody waits for it, and no request does."""


@dataclass(slots=True)
class KeysStats:
    """Plain counters, read by whoever exports them."""

    looks: int = 0
    resets: int = 0
    overrides_set: int = 0
    overrides_removed: int = 0
    overrides_refused: int = 0
    """Because there are as many as there may be."""


@dataclass(frozen=True, slots=True)
class RegionAccess:
    """Ways from the service to its node, and to the node's region as far as it has one."""

    node: str
    """Its name."""
    origin: Origin
    region_map: RegionMapReplica
    engine: Engine | RegionalEngine
    links: RegionNode | None
    """None for a node on its own: then its counters are all there is."""


@dataclass(frozen=True, slots=True)
class KeysService:
    """The methods of the service, each from a message to a message. See the module."""

    names: KeyNames
    overrides: Overrides
    blocks: Blocks
    region: RegionAccess
    clock: Clock
    logger: FilteringBoundLogger
    stats: KeysStats = field(default_factory=KeysStats)

    def methods(self) -> Mapping[str, AdminMethod]:
        """Return the methods by path."""
        return {
            f"/{SERVICE}/Get": admin_method(pb.GetRequest, self.get),
            f"/{SERVICE}/Reset": admin_method(pb.ResetRequest, self.reset),
            f"/{SERVICE}/SetOverride": admin_method(pb.SetOverrideRequest, self.set_override),
            f"/{SERVICE}/RemoveOverride": admin_method(pb.RemoveOverrideRequest, self.remove_override),
            f"/{SERVICE}/ListOverrides": admin_method(pb.ListOverridesRequest, self.list_overrides),
        }

    async def get(self, request: pb.GetRequest, _: Operator) -> pb.KeyState:
        """A key as this node, its region and other regions count it."""
        self.stats.looks += 1
        key = self.names.name(request.key)
        state = pb.KeyState(
            key=request.key, rule=key.rule, limit_key=key.key, limit=limit_message(key.limit), time_ms=self._now_ms(key)
        )
        override = self.overrides.find(key.key)
        if override is not None:
            state.rule_limit.CopyFrom(limit_message(key.rule_limit))
            state.override.CopyFrom(self._message(override))
        block = self.blocks.find(key.domain, key.entries)
        if block is not None:
            state.blocked = f"{block.entry.key}={block.entry.value} is blocked by {block.who}: {block.why}"
        await self._add_counts(state, key)
        state.previous_weight_millionths = view.previous_weight(key.limit, state.time_ms)
        return state

    async def reset(self, request: pb.ResetRequest, operator: Operator) -> pb.ResetResponse:
        """Forget all that was counted on a key."""
        key, why = self.names.name(request.key), overriding.reason(request.why)
        number = await self._reset(key)
        self.stats.resets += 1
        self._audit(operator, why, key.text).warning("key_reset", number=number, rule=key.rule)
        return pb.ResetResponse(number=number)

    async def set_override(self, request: pb.SetOverrideRequest, operator: Operator) -> pb.Override:
        """Another limit for a key, until a time."""
        key, why = self.names.name(request.key), overriding.reason(request.why)
        limit, factor = overriding.change_of(request)
        now_ms = self.region.region_map.now_ms()
        until_ms = overriding.ends_ms(request, now_ms)
        override = Override(
            key.key, key.domain, key.entries, until_ms, limit, factor, operator.who, why, now_ms
        )  # fmt: skip
        state = await self._write(overriding.entry_of(override))
        if state.refused:
            self.stats.overrides_refused += 1
            raise TooLarge(
                f"{state.entries} overrides are in force in this region, and at most {MOST_ENTRIES} may be: remove "
                "some (`headgate key override --list`), or wait until some have ended"
            )
        self.stats.overrides_set += 1
        change = {"limit": limit} if factor is None else {"factor": factor / MILLION}
        self._audit(operator, why, key.text).warning("key_overridden", until_ms=until_ms, rule=key.rule, **change)
        return self._message(override)

    async def remove_override(self, request: pb.RemoveOverrideRequest, operator: Operator) -> pb.RemoveOverrideResponse:
        """The rule's own limit again."""
        entries, why = entries_of(request.key), overriding.reason(request.why)
        override = self._find(request.key.domain, entries)
        if override is None:
            return pb.RemoveOverrideResponse(removed=False)
        await self._write(overriding.removal_of(override.key))
        self.stats.overrides_removed += 1
        self._audit(operator, why, describe(override.domain, override.entries)).warning("key_override_removed")
        return pb.RemoveOverrideResponse(removed=True)

    async def list_overrides(self, request: pb.ListOverridesRequest, _: Operator) -> pb.ListOverridesResponse:
        """All that are in force, by domain and descriptor."""
        await self.region.region_map.refresh()
        found = [item for item in self.overrides.all() if request.domain in ("", item.domain)]
        found.sort(key=lambda item: (item.domain, item.entries))
        return pb.ListOverridesResponse(overrides=map(self._message, found), most=MOST_ENTRIES)

    # What the methods share

    async def _reset(self, key: NamedKey) -> int:
        region = self.region
        if isinstance(region.engine, Engine):
            region.engine.reset(key.key)
        if region.links is None:
            return 0
        try:
            number = await region.links.reset(key.key, key.limit, key.shard_key)
        except OriginError as error:
            raise NotReady(f"the key's shard did not answer, so it may have been reset, or not: {error}") from error
        told = resetting.entry_of(key, number, region.region_map.now_ms())
        if told is not None:
            # Made it is in any case: without this the others hear of it with their next call for the key.
            with contextlib.suppress(OriginError):
                await region.region_map.write([told])
        return number

    async def _write(self, entry: MapEntry) -> MapState:
        try:
            return await self.region.region_map.write([entry])
        except OriginTimeout as error:
            raise NotReady(
                f"the region's origin did not answer, so it may have been stored: {error}; look, or try again"
            ) from error
        except OriginError as error:
            raise NotReady(f"the region's origin can't be reached, nothing has changed: {error}") from error

    def _find(self, domain: str, entries: tuple[tuple[str, str], ...]) -> Override | None:
        """Find an override by the key of now; or by the very descriptor, should the rules have changed since."""
        key = self.names.find(domain, entries)
        override = None if key is None else self.overrides.find(key.key)
        if override is not None:
            return override
        named = [item for item in self.overrides.all() if (item.domain, item.entries) == (domain, entries)]
        return named[0] if named else None

    def _message(self, override: Override) -> pb.Override:
        message = pb.Override(
            key=key_message(override.domain, override.entries),
            until_ms=override.expires_ms,
            who=override.who,
            why=override.why,
            made_ms=override.made_ms,
        )
        if override.limit is not None:
            message.limit = override.limit
        else:
            message.factor_millionths = override.factor_millionths or 0
        key = self.names.find(override.domain, override.entries)
        message.applies = key is not None and key.key == override.key
        if key is not None and message.applies:
            message.limit_in_force.CopyFrom(limit_message(override.apply(key.rule_limit)))
        return message

    def _now_ms(self, key: NamedKey) -> int:
        links = self.region.links
        return self.clock.now_ms() if links is None else links.shard_of(key.shard_key).now_ms()

    async def _add_counts(self, state: pb.KeyState, key: NamedKey) -> None:
        region = self.region
        counter: Any = region.engine.counters.find(key.key)
        state.node.CopyFrom(view.node_message(region.node, counter, state.time_ms, self.clock.monotonic()))
        copy = view.copy_of_counter(counter, key.key, key.limit, state.time_ms)
        if region.links is not None:
            try:
                for shard in owners_of(region.origin, key.shard_key):
                    state.shard = shard
                    peek = await region.origin.run(shard, PeekKey(key.key, key.limit.window_ms), PEEK_TIMEOUT_S)
                    if peek.readable and peek.record is not None:
                        break
            except OriginError as error:
                state.region_error = f"the shard could not be asked: {error}"
            else:
                state.time_ms = peek.time_ms
                found = view.region_message(peek)
                if found is not None:
                    state.region.CopyFrom(found)
                if peek.readable:
                    copy = view.copy_of_record(peek, key.key, key.limit)
                else:
                    state.region_error = "the record can't be read: it is garbled, or of a newer version"
        view.add_usage(state, copy, key.limit)

    def _audit(self, operator: Operator, why: str, key: str) -> FilteringBoundLogger:
        """Return a logger with caller, key and reason. Changes are warnings: made by hand, and not to be missed."""
        bound: FilteringBoundLogger = self.logger.bind(who=operator.who, peer=operator.peer, why=why, key=key)
        return bound
