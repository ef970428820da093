"""What the transaction coordinator's codes are called in the versions of requests that do not have them yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.errors import ErrorCode

FENCED_SINCE: Final[Mapping[str, int]] = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
"""Before, a producer that was fenced gets INVALID_PRODUCER_EPOCH (KIP-588)."""
ABORTABLE_SINCE: Final[Mapping[str, int]] = {
    "InitProducerId": 5,
    "AddPartitionsToTxn": 5,
    "AddOffsetsToTxn": 4,
    "EndTxn": 4,
    "Produce": 11,
    "TxnOffsetCommit": 4,
}
"""Before, a transaction that can only be aborted is in an invalid state (KIP-890)."""


def code_for(api: str, version: int, code: int) -> int:
    """Returns the code as that version of the API says it."""
    if code == ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE.get(api, 0):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE.get(api, 0):
        return ErrorCode.INVALID_TXN_STATE
    return code
