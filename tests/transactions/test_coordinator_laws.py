"""What holds of transactions whatever producers do, and when.

Producers of one transactional id, of which at most one is the last to have begun, ask in any order and with whatever they were told;
answers are lost, and requests repeated; brokers refuse markers; time passes, and the coordinator is lost and rebuilt from its records. Each
decision is compared with an oracle that says the same in another way (``table_oracle.py``). And besides:

- no two markers of a transaction say different things; from version 2 on, no two of a producer id and epoch;
- no id and epoch is given to two producers; who adds partitions is the last one that has begun;
- a commit that was answered has commit markers, and no others;
- a request that is repeated gets the same answer, over a failover too;
- the records of the log give the state, no more and no less;
- in the end every transaction is complete, and nothing waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.transactions.coordinator_runner import ID, TIMEOUT_MS, Runner
from tests.transactions.table_oracle import expected, seen

from ottla.errors import ErrorCode
from ottla.machine import Decision
from ottla.messages.transaction_records import TransactionLogValue
from ottla.transactions.commands import (
    AddPartitions,
    EndResult,
    EndTransaction,
    InitProducerId,
    InitResult,
    PartitionsResult,
    VerifyPartitions,
)
from ottla.transactions.coordinator import TransactionCoordinator
from ottla.transactions.effects import TakeProducerId, WriteMarkers
from ottla.transactions.records import decode_record
from ottla.transactions.transaction import Transaction, TransactionState
from ottla.types import TopicPartition

STEPS = 30
EXAMPLES = 2 * settings().max_examples if settings().max_examples >= 1000 else 800
CODES = [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
CLIENTS = (InitProducerId, AddPartitions, VerifyPartitions, EndTransaction)


class Checked(Runner):
    """Compares each decision with the oracle."""

    def __init__(self, level: int) -> None:
        self.markers: dict[tuple[int, int], set[bool]] = {}  # of version 2
        self.markers_of: dict[int, set[bool]] = {}  # by the number of the transaction
        self.transaction_count = 0
        self.every_effect: list[WriteMarkers] = []
        super().__init__(level=level)

    def decide(self, command: Any) -> None:
        if isinstance(command, CLIENTS):
            before = self.machine._transactions.get(ID)
            decision = self.machine.decide(command, self.now_ms)
            check(decision, before, command, is_late=any(self.machine._unmarked.get(ID, {}).values()))
            is_begun = isinstance(command, AddPartitions) and bool(decision.records) and before is not None
            self.transaction_count += is_begun and before is not None and before.state != TransactionState.ONGOING
        super().decide(command)

    def _carry_out_effect(self, effect: Any) -> None:
        if isinstance(effect, WriteMarkers):
            self.every_effect.append(effect)
            said = [self.markers_of.setdefault(self.transaction_count, set())]
            if effect.transaction_version == 2:
                said.append(self.markers.setdefault((effect.producer_id, effect.producer_epoch), set()))
            for found in said:
                found.add(effect.is_commit)
                assert len(found) == 1, "all markers say the same"
        super()._carry_out_effect(effect)


def check(decision: Decision, before: Transaction | None, command: Any, *, is_late: bool) -> None:
    wanted = expected(before, command, is_late=is_late)
    written = [Transaction.from_value(record.value) for record in decision.records if isinstance(record.value, TransactionLogValue)]
    assert [seen(one) for one in written] == wanted.written
    assert [value for _, value in decision.replies] == ([] if wanted.reply is None else [wanted.reply])
    assert bool(decision.parks) == wanted.waits
    assert any(isinstance(effect, TakeProducerId) for effect in decision.effects) == wanted.takes_producer_id


@dataclass
class Client:
    """A producer: what it was told last, and what it asked for."""

    number: int
    version: int
    had: tuple[int, int] | None = None
    command: Any = None


class World:
    def __init__(self, level: int, epoch: int, versions: tuple[int, ...]) -> None:
        self.level = level
        self.runner = Checked(level)
        self.clients = [Client(number, version if level == 2 else 0) for number, version in enumerate(versions)]
        self.zombies: list[Client] = []
        self.count = len(self.clients)
        self.owner = 0  # who was told last that it has begun
        self.told: dict[tuple[int, int], int] = {}
        self.by_token: dict[int, tuple[Client, Any]] = {}
        self.repeats: list[tuple[int, int]] = []
        self.is_undisturbed = False  # since the last request nothing has happened that may change its answer
        self.last_token = 0
        self.clients[0].had = self.runner.brought_to(epoch)
        self.told[self.clients[0].had] = 0
        self.heard = set(self.runner.answers)
        self.is_lost: set[int] = set()

    def step(self, kind: int, who: int, what: int) -> None:
        client = self.clients[who % len(self.clients)]
        was_awaited = bool(self.runner.waiting - {self.last_token})  # by others, which are decided when a transaction is complete
        if kind == 1:
            self._begin(client, who % len(self.clients))
        elif kind == 2 and client.had is not None:
            self._ask(client, InitProducerId(0, ID, TIMEOUT_MS, *client.had), what)
        elif kind in (3, 4, 5) and client.had is not None:
            self._ask(client, AddPartitions(0, ID, *client.had, (TopicPartition("t", what % 4),), client.version), what)
        elif kind in (6, 7, 8) and client.had is not None:
            self._ask(client, EndTransaction(0, ID, *client.had, is_commit=what % 3 > 0, transaction_version=client.version), what)
        elif kind == 9 and client.had is not None:
            self._ask(client, VerifyPartitions(0, ID, *client.had, (TopicPartition("t", what % 4),)), what)
        elif kind in (10, 11) and client.command is not None:
            self._repeat(client, what)
        elif kind in (12, 13, 14):
            self._answer_markers(what)
            self.is_undisturbed &= not was_awaited
        elif kind == 15 and self.runner.every_effect:
            self.is_undisturbed &= not was_awaited
            self.runner.answer(self.runner.every_effect[what % len(self.runner.every_effect)], CODES[who % len(CODES)])
        elif kind == 16:
            self.runner.restart()
            self.is_undisturbed &= self.level > 0
        elif kind == 17:
            self.runner.advance((1, 20, 1_000, TIMEOUT_MS)[what % 4])
            self.is_undisturbed = False
        elif kind == 18 and self.zombies:
            zombie = self.zombies[what % len(self.zombies)]
            assert zombie.had is not None
            self._ask(zombie, EndTransaction(0, ID, *zombie.had, is_commit=who > 1, transaction_version=zombie.version), what)
        elif kind == 19 and self.zombies:
            zombie = self.zombies[who % len(self.zombies)]
            assert zombie.had is not None
            self._ask(zombie, InitProducerId(0, ID, TIMEOUT_MS, *zombie.had), what)
        self._hear()
        self._check_state()

    def _begin(self, client: Client, index: int) -> None:
        """Another process takes its place; the earlier one may live on."""
        if client.had is not None:
            self.zombies.append(client)
        client = self.clients[index] = Client(self.count, client.version)
        self.count += 1
        self._ask(client, InitProducerId(0, ID, TIMEOUT_MS), 1)

    def _ask(self, client: Client, command: Any, what: int) -> int:
        token = self.runner.token()
        client.command = command
        self.by_token[token] = (client, command)
        if what % 5 == 0:
            self.is_lost.add(token)
        self.is_undisturbed, self.last_token = True, token
        self.runner.decide(replace(command, token=token))
        return token

    def _repeat(self, client: Client, what: int) -> None:
        """Because it has not got the answer; it gets the same, if nothing else has happened."""
        before, command = self.last_token, client.command
        is_comparable = (
            self.is_undisturbed and before in self.by_token and self.by_token[before][0] is client and before in self.runner.answers
        )
        is_idempotent = not isinstance(command, VerifyPartitions) and not (isinstance(command, InitProducerId) and command.producer_id < 0)
        token = self._ask(client, command, what)
        if is_comparable and is_idempotent:
            self.repeats.append((before, token))

    def _answer_markers(self, what: int) -> None:
        if self.runner.asked:
            markers = self.runner.asked[what % len(self.runner.asked)].markers
            self.runner.answer(markers, CODES[what % len(CODES)], CODES[what // 4 % len(CODES)])

    def _hear(self) -> None:
        for token in sorted(self.runner.answers.keys() - self.heard):
            self.heard.add(token)
            if token in self.by_token:
                self._hear_one(*self.by_token[token], token, self.runner.answers[token])
        for before, token in self.repeats:
            answers = [self.runner.answers[one] for one in (before, token) if one in self.runner.answers]
            busy = any(code == ErrorCode.CONCURRENT_TRANSACTIONS for code in map(code_of, answers))
            assert busy or len(answers) < 2 or answers[0] == answers[1], "who repeats a request gets the same answer"

    def _hear_one(self, client: Client, command: Any, token: int, answer: Any) -> None:
        if isinstance(answer, InitResult | EndResult) and answer.error_code == 0:
            pair = (answer.producer_id, answer.producer_epoch)
            assert self.told.setdefault(pair, client.number) == client.number, "no two producers have one id and epoch"
            if isinstance(answer, InitResult):
                self.owner = client.number
            elif client.version == 2 and command.is_commit:
                said = self.runner.markers.get((command.producer_id, command.producer_epoch + 1))
                assert said == {True}, "what was answered is what the markers say"
            if token not in self.is_lost:
                client.had = pair
        elif isinstance(answer, PartitionsResult) and isinstance(command, AddPartitions) and not any(answer.error_codes):
            assert client.number == self.owner, "who adds partitions is the last one that has begun"

    def _check_state(self) -> None:
        rebuilt = TransactionCoordinator(self.runner.settings)
        for key, value in self.runner.log[-4:] if self.level else ():
            record = decode_record(key, value)
            assert record is not None
            rebuilt.apply(record)
        list(rebuilt.on_loaded(self.runner.now_ms))
        assert self.level == 0 or rebuilt._transactions == self.runner.machine._transactions

    def settle(self) -> None:
        """Brokers are well again, and every id can be used."""
        self.runner.restart()  # of those that were superseded, the next coordinator
        for _ in range(4):
            self.runner.answer_all()
            self._hear()
        assert self.runner.waiting == set()
        assert not self.runner.status().is_prepared
        found = self.runner.init()
        if found is None:
            self.runner.answer_all()
        assert not self.runner.status().is_prepared
        assert self.runner.waiting == set()


def code_of(answer: Any) -> int:
    code: int = answer.error_codes[0] if isinstance(answer, PartitionsResult) else answer.error_code
    return code


Step = tuple[int, int, int]


@settings(max_examples=EXAMPLES)
@example(2, 32_766, (2, 2, 2), [(3, 0, 1), (6, 0, 1), (12, 0, 0), (10, 0, 1), (6, 0, 3), (1, 1, 0), (19, 0, 0)])
@example(2, 32_766, (2, 2, 2), [(1, 1, 0), (19, 0, 0), (3, 1, 1), (18, 0, 1)])
@example(2, 5, (2, 0, 2), [(1, 1, 0), (3, 1, 1), (6, 1, 1), (12, 0, 0), (18, 2, 1), (18, 0, 1)])
@example(0, 0, (0, 0, 0), [(3, 0, 0), (6, 0, 0), (1, 1, 0), (6, 0, 1), (12, 0, 0), (10, 0, 0)])
@given(
    st.integers(0, 2),
    st.sampled_from([0, 32_764, 32_765, 32_766]),
    st.tuples(*[st.sampled_from([0, 2])] * 3),
    st.lists(st.tuples(st.integers(0, 19), st.integers(0, 3), st.integers(0, 15)), min_size=STEPS, max_size=STEPS),
)
def test_whatever_producers_do(level: int, epoch: int, versions: tuple[int, int, int], program: list[Step]) -> None:
    world = World(level, epoch, versions)
    for step in program:
        world.step(*step)
    world.settle()
