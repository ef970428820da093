"""Changes of transaction.version and of the time of day, and what administrators do, beside a transaction."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.test_transactions import BOTH, begun, read, settled
from tests.broker.transactional import TransactionalProducer
from tests.client.simulated import KEY, create, with_broker
from tests.quiet import silence
from tests.races.gates import gate_after, gate_before
from tests.races.one_broker import nothing_is_open, partition_of, parts_of, twin_of
from tests.transactions.coordinator_runner import Runner

from ottla.client.admin import Admin, Outcome
from ottla.controller.features import TRANSACTION_VERSION
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.update_features import UpgradeType
from ottla.sim.cluster import SimBroker
from ottla.transactions.coordinator import TransactionSettings

OUTCOMES = pytest.mark.parametrize("is_commit", [True, False])
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


async def finalize(broker: SimBroker, level: int) -> None:
    admin = Admin(broker.client("features"))
    kind = UpgradeType.SAFE_DOWNGRADE if level < parts_of(broker).transactions.finalized_version else UpgradeType.UPGRADE
    await admin.update_features({TRANSACTION_VERSION: level}, upgrade_type=kind)
    await admin.close()
    while parts_of(broker).transactions.finalized_version != level:
        await asyncio.sleep(0.01)


@OUTCOMES
@pytest.mark.parametrize(("before", "after"), [(0, 1), (0, 2), (1, 2), (2, 1), (2, 0), (1, 0)])
@pytest.mark.parametrize("when", ["open", "decided"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_transaction_that_is_open_or_decided_when_the_level_changes(
    is_restarted: bool, when: str, before: int, after: int, is_commit: bool
) -> None:
    """It ends as it would have; the producer's next one is of the level that it asks for."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        if before != 2:
            await finalize(broker, before)
        producer = await begun(broker, max(before, 1))
        assert await producer.write(KEY, b"a") == 0
        assert await producer.commit_offsets("g", {KEY: 5}) == 0
        ended_epoch = producer.epoch + (producer.level == 2)
        with gate_before(parts_of(broker).end_markers, "write") as arriving:
            if when == "decided":
                assert await producer.end(is_commit=is_commit) == 0
                await arriving.reached()
            await finalize(broker, after)
            if is_restarted:
                broker.kill(power_cut=False)
            await arriving.open()
        if is_restarted:
            await broker.start()
        again = twin_of(broker, producer, "again")
        again._sequences = producer._sequences
        if when == "open":
            assert await again.end(is_commit=is_commit) == 0
        await settled(again)
        assert again.epoch == ended_epoch
        assert nothing_is_open(broker, KEY)
        assert await read(broker, KEY) == ([b"a"] if is_commit else [])
        assert await again.committed("g", KEY, require_stable=True) == ((5, 0) if is_commit else (-1, 0))
        next_one = await begun(broker, max(after, 1), "next")
        assert await next_one.write(KEY, b"b") == 0
        assert await next_one.end(is_commit=True) == 0
        await settled(next_one)
        assert (await read(broker, KEY))[-1] == b"b"

    with_broker(body)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("when", ["before its last use", "after its last use"])
def test_an_id_expires_by_the_time_of_day_at_most_a_jump_too_early_or_too_late(when: str, jump_ms: int) -> None:
    """Its record has the time of its last use."""
    kept_ms = 5 * HOUR_MS
    runner = Runner(TransactionSettings(id_expiration_ms=kept_ms, expiration_check_interval_ms=1_000))
    found = runner.init()
    assert found is not None

    def jump() -> None:
        runner.now_ms += jump_ms
        runner.timers = {name: type(timer)(timer.name, timer.deadline_ms + jump_ms, timer.command) for name, timer in runner.timers.items()}

    if when == "before its last use":
        jump()
        found = runner.init()
        assert found is not None
        jump_ms = 0
    else:
        jump()
    left_ms = kept_ms - jump_ms
    runner.advance(left_ms - 1_000)
    assert runner.described() is not None
    runner.advance(2_000)
    assert runner.described() is None


# -- administrators


async def hangs(broker: SimBroker) -> list[Outcome]:
    found = await Admin(broker.client("finding")).find_hanging_transactions([KEY], longer_than_ms=0)
    return [one.outcome for one in found]


@BOTH
@OUTCOMES
def test_a_transaction_whose_marker_is_on_its_way_does_not_hang(is_commit: bool, level: int) -> None:
    """``ottla txn abort`` aborts what hangs: neither before the marker, nor after it."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        assert await producer.write(KEY, b"a") == 0
        with gate_before(parts_of(broker).end_markers, "write") as arriving:
            assert await producer.end(is_commit=is_commit) == 0
            await arriving.reached()
            assert await hangs(broker) == []
            await arriving.open()
        await settled(producer)
        assert await hangs(broker) == []

    with_broker(body)


async def lose_a_marker(broker: SimBroker, producer: TransactionalProducer, *, is_commit: bool) -> None:
    """The coordinator takes its marker for written, and it is not."""

    async def nothing(image: object, due: list[object]) -> list[int]:
        return [0] * len(due)

    markers = parts_of(broker).end_markers
    write, markers.write = markers.write, nothing  # type: ignore[method-assign, assignment]
    assert await producer.end(is_commit=is_commit) == 0
    await settled(producer)
    markers.write = write  # type: ignore[method-assign]


@BOTH
@OUTCOMES
@pytest.mark.parametrize("is_late", [True, False])
def test_an_administrators_marker_beside_that_of_the_coordinator(is_late: bool, is_commit: bool, level: int) -> None:
    """Both are the coordinator's decision: what comes second changes nothing."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        assert await producer.write(KEY, b"a") == 0
        before = producer.epoch
        await lose_a_marker(broker, producer, is_commit=is_commit)
        admin = Admin(broker.client("admin"))
        [hanging] = await admin.find_hanging_transactions([KEY], longer_than_ms=0)
        assert hanging.outcome is (Outcome.COMMIT if is_commit else Outcome.ABORT)
        twin = twin_of(broker, producer)
        twin.producer_id = hanging.producer_id
        marker = {"is_commit": is_commit, "epoch": before + (level == 2), "transaction_version": 2 if level == 2 else 0}
        with gate_after(admin, "find_hanging_transactions") as found:
            ending = asyncio.get_running_loop().create_task(admin.end_hanging_transaction(hanging))
            await found.reached()
            if is_late:
                assert await twin.mark(KEY, **marker) == 0  # type: ignore[arg-type]
            await found.open()
            await ending
        if not is_late:
            assert await twin.mark(KEY, **marker) == 0  # type: ignore[arg-type]
        assert partition_of(broker, KEY).log.log_end_offset == 2
        assert nothing_is_open(broker, KEY)
        assert await read(broker, KEY) == ([b"a"] if is_commit else [])
        with pytest.raises(KafkaError) as refused:
            await admin.end_hanging_transaction(hanging)
        assert refused.value.code == ErrorCode.INVALID_TXN_STATE

    with_broker(body)


def test_a_transaction_that_an_administrator_fences_beside_its_end() -> None:
    """``ottla txn fence``, which comes second, waits for the markers; a commit that comes second is fenced."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        admin = Admin(broker.client("admin"))
        for number, is_first in enumerate([True, False]):
            producer = await begun(broker, 2, f"p-{number}")
            assert await producer.write(KEY, b"%d" % number) == 0
            with gate_before(parts_of(broker).end_markers, "write") as arriving:
                loop = asyncio.get_running_loop()
                if not is_first:
                    assert await producer.end(is_commit=True) == 0
                fencing = loop.create_task(admin.fence_producers(["x"]))
                await arriving.reached()
                ending = loop.create_task(producer.end(is_commit=True)) if is_first else None
                await asyncio.sleep(0.5)
                await arriving.open()
                assert not isinstance((await fencing)["x"], KafkaError)
                assert ending is None or await ending == ErrorCode.PRODUCER_FENCED
            assert await producer.end(is_commit=True) == ErrorCode.PRODUCER_FENCED
        assert await read(broker, KEY) == [b"1"]

    with_broker(body)
