"""What belongs to the transaction at present: the producer's id and epoch, the partitions, and whether any answer about it was lost.

The sender asks it before each batch; ``transactions.py`` keeps it true. At level 2 a partition needs no leave: its leader adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.client.transaction_errors import of_produce
from ottla.client.transaction_states import TransactionStates
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

PRODUCE_WITHOUT_ADDING: Final = 11
"""The newest version of Produce that does not add the partition to its transaction (KIP-890)."""


class Enlistment:
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.states = TransactionStates()
        self.producer_id = -1
        self.producer_epoch = -1
        self.level = 1
        self.added: set[TopicPartition] = set()  # the coordinator has them; not kept at level 2
        self.wanted: set[TopicPartition] = set()  # their batches wait until they are added
        self.was_asked = False  # the transaction may have begun at the coordinator
        self.is_confirmed = False  # it has
        self.needs_epoch = False  # at level 1: something of this epoch may still be on its way
        self.ended_at_level_1 = False  # a transaction of this epoch: its markers may come after batches of a later one at level 2
        self.on_wanted: Callable[[], None] = lambda: None  # called when ``wanted`` has a partition more

    def begin(self, level: int) -> None:
        """Starts a transaction without partitions."""
        self.level = level
        self.added.clear()
        self.wanted.clear()
        self.was_asked = self.is_confirmed = False

    def may_send(self, partition: TopicPartition) -> bool:
        """True when a batch of the partition may go out; one that may not waits until the partition is added."""
        if not self.states.takes_batches:
            return False
        if self.level >= 2 or partition in self.added:
            return True
        if partition not in self.wanted:
            self.wanted.add(partition)
            self.on_wanted()
        return False

    def produce_version_max(self, version: int) -> int | None:
        """Returns the newest version of Produce that may be used with a broker that has ``version``; None for that one itself."""
        if self.level < 2:
            return PRODUCE_WITHOUT_ADDING
        if version <= PRODUCE_WITHOUT_ADDING:
            text = f"the cluster has transaction.version 2, and a broker only version {version} of Produce"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        return None

    def on_lost(self) -> None:
        """Notes that the answer to a request was lost: it may arrive late, and then must not be taken for an answer of the next
        transaction.

        At level 2 each end of a transaction brings a new epoch.
        """
        if self.level < 2:
            self.needs_epoch = True

    def on_failed_batch(self, problem: KafkaError, *, is_numbered: bool) -> KafkaError:
        """Fails the transaction, which cannot be committed without the batch; a batch that had its number leaves a gap.

        Returns the error of its records: of the class that the calls of the producer raise from now on, or plain after an abort.
        """
        if is_numbered:
            self.on_lost()
        meaning = of_produce(problem)
        self.states.fail(meaning)
        return problem if problem.code == ErrorCode.OPERATION_NOT_ATTEMPTED else meaning

    def why_dropped(self) -> KafkaError:
        """Returns the error of a record that was not sent: the transaction's failure, or that it was aborted."""
        problem = self.states.problem
        if problem is None:
            return KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, "the transaction was aborted before the record was sent")
        text = f"the record was not sent, since its transaction had failed: {problem.message or problem.code.name}"
        return type(problem)(problem.code, text)
