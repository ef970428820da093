"""Which machine answers a transcript: the first part of its file's name says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.scenarios.group_player import GroupPlayer
from tests.scenarios.member_player import MemberPlayer
from tests.scenarios.quorum_player import QuorumPlayer
from tests.scenarios.replica_player import ReplicaPlayer
from tests.scenarios.transaction_player import TransactionPlayer
from tests.scenarios.transcript import Play

PLAYERS: Final[Mapping[str, Callable[[], Play]]] = {
    "groups": GroupPlayer,
    "member": MemberPlayer,
    "quorum": QuorumPlayer,
    "replicas": ReplicaPlayer,
    "transactions": TransactionPlayer,
}


def player_of(path: Path) -> Play:
    """A fresh machine for the transcript."""
    return PLAYERS[path.stem.split("_")[0]]()
