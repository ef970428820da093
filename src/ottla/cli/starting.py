"""How a node that is down is started again: the end of what commands say about one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

HOW_TO_START: Final = "`ottla broker start FILE` on its machine, `ottla cluster restart {}` for a cluster of this machine"


def how_to_start(brokers: Collection[int]) -> str:
    """Returns what to do about brokers that do not answer while others do, as the end of a sentence about them."""
    numbers, it = (str(*brokers), "it") if len(brokers) == 1 else ("NODE", "them")
    return f"; start {it} ({HOW_TO_START.format(numbers)}); `ottla cluster health` says what else is wrong"
