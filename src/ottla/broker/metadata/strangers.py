"""Who does not belong to this quorum, as far as its replica has met them: voters of another cluster, and those who name other leaders."""

from __future__ import annotations

from ottla.consensus.effects import SecondLeader
from ottla.consensus.settings import QuorumSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger

log = get_logger(__name__)


class Strangers:
    def __init__(self, settings: QuorumSettings) -> None:
        self._settings = settings
        self._foreign: set[int] = set()  # voters that said that they are of another cluster
        self._contradicted_epoch = -1
        self.second_leader_count = 0
        """How often a request or an answer named a second leader for one epoch."""

    def on_leader(self) -> None:
        """Forgets the strangers: the quorum has a leader, or another epoch."""
        self._foreign.clear()

    def on_foreign(self, voter: int, *, has_leader: bool) -> KafkaError | None:
        """Notes a voter of another cluster. INCONSISTENT_CLUSTER_ID if most voters are: it is this node that is at the wrong place."""
        self._foreign.add(voter)
        log.warning("voter_of_another_cluster", voter=voter)
        if len(self._foreign) < self._settings.voters.majority or has_leader:
            return None
        text = f"the voters {sorted(self._foreign)} are of another cluster than {self._settings.cluster_id}"
        return KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)

    def on_second_leader(self, said: SecondLeader) -> None:
        """Counts the claim, whose sender may be any process, and logs it once an epoch, however often it comes."""
        self.second_leader_count += 1
        if said.epoch != self._contradicted_epoch:
            self._contradicted_epoch = said.epoch
            log.warning("metadata_leader_contradicted", epoch=said.epoch, leader_id=said.known_id, claimed_id=said.leader_id)
