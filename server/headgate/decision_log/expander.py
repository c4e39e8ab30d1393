"""Pages into records: names, hashes and all else that a decision did not have to wait for."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from headgate.decision_log.batch import DecisionBatch, batch_of
from headgate.decision_log.log import Page
from headgate.decision_log.names import hash_of_descriptor, hash_of_key, terms_of
from headgate.decision_log.schema import ROW, Flag
from headgate.limiter.decision import Charge, DecisionPath, Kind

PATHS: Final = tuple(DecisionPath)
"""The paths by the numbers that rows have for them."""
_PATH_NAMES: Final = tuple([path.value for path in PATHS])
MAX_NAMED: Final = 16_384
"""Keys, and descriptors, whose hashes are kept: some 10 MB. Those that were met last are."""

# As plain numbers: flags of the enum's own kind take a microsecond to put together.
_SHADOW: Final = int(Flag.SHADOW)
_QUOTA: Final = int(Flag.QUOTA)
_REFUND: Final = int(Flag.REFUND)


class Expander:
    """Turns pages into records. For the log's thread alone."""

    def __init__(self, *, values: bool) -> None:
        """`values`: log descriptors as they are, and not their hashes alone."""
        self._values = values
        self._key_hash = lru_cache(MAX_NAMED)(hash_of_key)
        self._descriptor_hash = lru_cache(MAX_NAMED)(hash_of_descriptor)

    def __call__(self, page: Page) -> DecisionBatch:
        columns: dict[str, Sequence[int]] = {name: page.flat[at :: len(ROW)] for at, name in enumerate(ROW)}
        charge_index = columns["charge"]
        charges = [charge for charge, _ in page.charges]
        tables: dict[str, Sequence[Any]] = {"path": _PATH_NAMES}

        def intern(name: str, values: Sequence[Any]) -> None:
            tables[name], columns[name] = _interned(values, charge_index)

        intern("rule", [charge.rule for charge in charges])
        intern("terms", [charge.limit for charge in charges])
        intern("version", [version for _, version in page.charges])
        intern("entries", [charge.entries if self._values else () for charge in charges])
        tables["terms"] = [terms_of(limit) for limit in tables["terms"]]
        tables["version"] = [str(version) for version in tables["version"]]
        columns["key"] = _per_row([self._key_hash(charge.key) for charge in charges], charge_index)
        hashes = [self._descriptor_hash(charge.rule.domain, charge.entries) for charge in charges]
        columns["descriptor_hash"] = _per_row(hashes, charge_index)
        columns["cost"] = _per_row([charge.cost for charge in charges], charge_index)
        of_charges = _per_row(list(map(_flags_of, charges)), charge_index)
        columns["flags"] = [seen | fixed for seen, fixed in zip(columns["flags"], of_charges, strict=True)]
        columns["trace_id"] = [page.traces.get(number, 0) for number in columns["number"]]
        return batch_of(columns, tables)


def _flags_of(charge: Charge) -> int:
    """The flags that are the same in every record of a charge."""
    flags = (_SHADOW if charge.shadow else 0) | (_QUOTA if charge.quota else 0)
    return flags | (_REFUND if charge.kind is Kind.REFUND else 0)


def _per_row(values: list[int], charge_index: Sequence[int]) -> list[int]:
    """Expand per-charge values to one per row."""
    return list(map(values.__getitem__, charge_index))


def _interned(values: Sequence[Any], charge_index: Sequence[int]) -> tuple[list[Any], list[int]]:
    """Each value once, and for each row the number of its charge's. By identity: equal ones are mostly one object."""
    ids = list(map(id, values))
    by_id = dict(zip(ids, values, strict=True))
    numbers = {key: number for number, key in enumerate(by_id)}
    return list(by_id.values()), _per_row(list(map(numbers.__getitem__, ids)), charge_index)
