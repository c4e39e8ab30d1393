"""Dynamic metadata that tells a request back, in the form of envoyproxy/ratelimit: for Envoy AI Gateway, which routes
by it, and for access logs.

`domain`, `descriptors` and `hitsAddend` are the request's own. `metadata` is that of the rules that passed, merged, and
`passedBackends` are the models that have something left of their quotas. All of it is encoded when a request is
planned; and again only when others pass of its descriptors than of the last request like it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headgate.limiter.decision import Charge, Entries, Verdict, quota_group
from headgate.limiter.model_budget import BACKEND, MODEL, model_of
from headgate.wire import ratelimit as wire
from headgate.wire.told_back import told_back

NOTHING_OVER: Final = 0


class ToldDescriptor(NamedTuple):
    """A descriptor of a request: its entries, and the positions of its charges."""

    entries: Entries
    charges: range


class RequestMetadata:
    """The metadata of all answers to one request."""

    __slots__ = ("_charges", "_descriptors", "_encoded", "_over", "_request", "size")

    def __init__(self, payload: bytes, descriptors: Sequence[ToldDescriptor], charges: Sequence[Charge]) -> None:
        self._descriptors = descriptors
        self._charges = charges
        self._request = wire.encode_dynamic_metadata(told_back(payload))
        self._over = NOTHING_OVER
        self._encoded = self._encode(NOTHING_OVER)
        self.size = len(self._request) + len(self._encoded)
        """Bytes that it takes, by estimate."""

    def encoded(self, verdicts: Sequence[Verdict]) -> bytes:
        """Return `dynamic_metadata`, with tag and length, for an answer of these verdicts, one per charge."""
        over = NOTHING_OVER
        for index, verdict in enumerate(verdicts):
            if verdict[0] and not self._charges[index].shadow:
                over |= 1 << index
        if over != self._over:
            self._over, self._encoded = over, self._encode(over)
        return self._encoded

    def _encode(self, over: int) -> bytes:
        """Encode the metadata of answers in which these charges, each a bit, are over their limits."""
        passed = self._passed({index for index in range(len(self._charges)) if over >> index & 1})
        told: dict[str, Any] = {}
        if metadata := _merged(self._charges[at].limit.metadata for descriptor in passed for at in descriptor.charges):
            told["metadata"] = metadata
        if any(charge.quota for charge in self._charges) and (models := _models(passed)):
            told["passedBackends"] = models
        # The same field twice: whoever reads the answer merges them.
        return self._request + wire.encode_dynamic_metadata(told) if told else self._request

    def _passed(self, over: set[int]) -> list[ToldDescriptor]:
        """Return the descriptors that have room, without those of a model that has none left of another quota."""
        charges = self._charges
        spent = {quota_group(charges[at]) for at in over if charges[at].quota}
        gone = over | {at for at, charge in enumerate(charges) if charge.quota and quota_group(charge) in spent}
        return [told for told in self._descriptors if gone.isdisjoint(told.charges)]


def _models(descriptors: Iterable[ToldDescriptor]) -> list[dict[str, str]]:
    """Return the models that descriptors name, each once."""
    found = dict.fromkeys(model for told in descriptors if (model := model_of(told.entries)))
    return [{BACKEND: backend, MODEL: model} for backend, model in found]


def _merged(found: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Merge metadata, mappings within it too; where two name one key otherwise, the earlier one's stays."""
    merged: dict[str, Any] = {}
    for metadata in found:
        for key, value in (metadata or {}).items():
            if isinstance(value, Mapping) and isinstance(merged.get(key, {}), Mapping):
                merged[key] = _merged((merged.get(key), value))
            else:
                merged.setdefault(key, value)
    return merged
