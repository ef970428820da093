"""One operation of one broker's disk is refused, or takes long, and then all works again: each kind of operation, on each kind of file.

What a full disk or a lack of descriptors refuses may work a moment later, with nothing lost (``storage/disk_errors.py``). So whatever it
was, in the end every replica is served and in sync, nothing that was acknowledged is lost, nothing is left of what went, and no process
had to be started again. Run as a program, ``python -m tests.simulation.refusals [SHARE OF SHARES]``, all of them are tried.
"""

from __future__ import annotations

import asyncio
import errno
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import structlog
from tests.simulation.quorum_nodes import NODES, QuorumNode, broker_alone, format_broker, started
from tests.simulation.zookeeper_nodes import ZookeeperNode

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker, SimClient, Simulation
from ottla.sim.disk import SimDisk
from ottla.sim.loop import run
from ottla.sim.zookeeper import SimZooKeeper
from ottla.storage.directory.room import RESERVE_NAME
from ottla.storage.log.replay import records_between
from ottla.types import TopicPartition

MOVED, LEFT, MADE_AGAIN, COMPACTED = TopicPartition("t", 0), TopicPartition("t", 1), "again", TopicPartition("compacted", 0)
DIRECTORIES: Final = ("/data", "/more")
PROPERTIES: Final = {
    "log.dirs": ",".join(DIRECTORIES),
    "log.segment.bytes": "1024",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.delete.retention.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.segment.delete.delay.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "400",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "1",
    "replica.lag.time.max.ms": "5000",
}
NEED_ROOM: Final = ("append", "create", "make_dirs", "reserve", "rename", "truncate")
FULL: Final = (*NEED_ROOM, "sync_dir")
"""What a full disk may refuse; a sync of a file that it refuses has failed, and is another matter."""
FULL_SECONDS: Final = 7
SLOW: Final = 0
SLOW_SECONDS: Final = 15
DESCRIPTORS: Final = ("open", "create", "read_file", "list_dir", "sync_dir", "remove_tree")
DO_SECONDS_MAX: Final = 120
HEAL_SECONDS_MAX: Final = 180
LEFTOVER: Final = re.compile(r"-(delete|future|stray)(/|$)|\.(deleted|swap|cleaned|tmp)$")
Operation = tuple[str, str]
"""The operation, and the kind of its path."""


Place = Literal["broker", "voter", "zookeeper"]
"""Whose disk it is: of a broker beside three voters, of one of them, or of a broker in ZooKeeper mode."""


@dataclass(frozen=True)
class Refusal:
    """The ``nth`` such operation, from 1 on, has this error; with ``lasts`` all that needs room has it from then on, for some seconds.

    SLOW is no error: it takes long.
    """

    operation: Operation
    nth: int
    code: int
    lasts: bool = False

    @property
    def is_of_new(self) -> bool:
        """Whether a directory is being made: for want of room it is left out until the next start, as by Kafka."""
        name, path = self.operation
        return "meta.properties" in path or (name in ("make_dirs", "sync_dir") and path in ("/", "/D") and self.nth <= len(DIRECTORIES))

    def __str__(self) -> str:
        what = errno.errorcode[self.code] if self.code != SLOW else "slow"
        return f"{what}{' for a while' if self.lasts else ''}: {self.operation[0]} {self.operation[1]} #{self.nth}"


@dataclass
class Life:
    """What a run met and found."""

    begun: Counter[Operation] = field(default_factory=Counter)
    """What would change something."""
    seen: Counter[Operation] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    has_struck: bool = False
    is_judged: bool = False
    may_end: bool = False
    """A process, because its disk has failed."""
    needs_descriptors: bool = False
    """A start without them ends, and says so."""


def kind_of(path: str) -> str:
    """The path without what differs between runs, and between the files of one kind."""
    path = re.sub(r"^/(data|more)", "/D", path)
    path = re.sub(r"/__cluster_metadata-0", "/METADATA", path)
    path = re.sub(r"/[a-z_]+-\d+(\.[0-9a-f]+)?", lambda found: "/P" + (".N" if found[1] else ""), path)
    path = re.sub(r"\.\d+\.swap", ".N.swap", path)
    return re.sub(r"\d{3,}(-\d{3,})?", "N", re.sub(r"[0-9a-f]{32}", "N", path))


def live(refusal: Refusal | None, seed: int = 1, *, place: Place = "broker") -> Life:
    """A life of a cluster with all that makes a broker use its disk; the one in that place meets the refusal."""
    code = None if refusal is None else refusal.code
    makes_directories = place == "zookeeper"  # nobody has formatted them
    is_lost = refusal is not None and (code == errno.EIO or (code == errno.ENOSPC and makes_directories and refusal.is_of_new))
    result = Life(may_end=is_lost, needs_descriptors=code == errno.EMFILE)

    async def main() -> None:
        simulation = Simulation(seed)
        number = NODES if place == "voter" else NODES + 1
        service = SimZooKeeper(simulation.random("zookeeper"), delay_ms_max=5)

        def node(other: int, properties: dict[str, str]) -> QuorumNode:
            if place == "zookeeper":
                return ZookeeperNode(simulation, other, service, properties)
            return QuorumNode(simulation, other, properties)

        nodes = [node(other, PROPERTIES | {"log.dirs": "/data"}) for other in range(1, min(NODES + 1, number))]
        for made in nodes:
            await made.format()
            made.begin()
        await started(nodes)
        victim: SimBroker
        if place == "broker":
            await format_broker(victim := broker_alone(simulation, number, f"node-{number}", PROPERTIES))
        else:
            await (last := node(number, PROPERTIES)).format()
            victim = last
        _Refusing(victim.machine.disk, refusal, result)
        await _Script(simulation, nodes, victim, number, result).act(is_kept=result.may_end)

    with structlog.testing.capture_logs() as events:
        try:
            run(main())
        except Exception as error:  # noqa: BLE001 - a mistake of a node may show in any way
            result.findings.append(repr(error))
    for event in events:
        if event["log_level"] in ("error", "critical"):
            result.errors[event["event"]] += 1
            if event.get("exc_info") or (event["event"] in ("log_dir_failed", "broker_failed") and not result.may_end):
                result.findings.append(f"{event['event']}: {event.get('reason') or event.get('exc_info')!r}")
    return result


class _Refusing:
    """A disk that meets the refusal, from now on."""

    def __init__(self, disk: SimDisk, refusal: Refusal | None, result: Life) -> None:
        self._disk = disk
        self._refusal = refusal
        self._result = result
        self._take_long = disk._take_long
        self._until = 0.0
        disk._strike, disk._take_long = self._strike, self._begin  # type: ignore[method-assign]

    async def _begin(self, operation: str, path: str) -> None:
        """What changes something begins, and is slow before anybody sees it."""
        met = (operation, kind_of(path))
        self._result.begun[met] += 1
        if self._is_due(met, self._result.begun, is_slow=True):
            await asyncio.sleep(SLOW_SECONDS)
        await self._take_long(operation, path)

    def _strike(self, operation: str, path: str) -> None:
        met, now = (operation, kind_of(path)), asyncio.get_running_loop().time()
        self._result.seen[met] += 1
        if self._is_due(met, self._result.seen, is_slow=False):
            self._until = now + FULL_SECONDS
            self._refuse(operation, path)
        is_full = now < self._until and self._refusal is not None and self._refusal.lasts and operation in NEED_ROOM
        if is_full and (operation == "reserve" or "/P" in met[1] or self._has_reserve(path)):
            self._refuse(operation, path)

    def _is_due(self, met: Operation, counts: Counter[Operation], *, is_slow: bool) -> bool:
        refusal = self._refusal
        if refusal is None or self._result.has_struck or self._result.is_judged or (refusal.code == SLOW) != is_slow:
            return False
        self._result.has_struck = met == refusal.operation and counts[met] == refusal.nth
        return self._result.has_struck

    def _refuse(self, operation: str, path: str) -> None:
        assert self._refusal is not None
        raise OSError(self._refusal.code, f"refused {operation} of {path}")

    def _has_reserve(self, path: str) -> bool:
        """What is not a partition's is written where it was, once that is given up."""
        return f"/{path.split('/')[1]}/{RESERVE_NAME}" in self._disk.files


class _Script:
    """What clients and the operator do, each step until it is done."""

    def __init__(self, simulation: Simulation, nodes: list[QuorumNode], victim: SimBroker, number: int, result: Life) -> None:
        self._simulation = simulation
        self._nodes = nodes
        self._victim = victim
        self._number = number
        self._result = result
        self._sent: dict[TopicPartition, list[bytes]] = {}
        self._clients = 0
        self._bootstrap = ",".join(node.bootstrap for node in nodes)
        self._turn = asyncio.Lock()  # of starting and ending the process

    async def act(self, *, is_kept: bool) -> None:
        """With ``is_kept`` the process is started again where a disk has failed."""
        await self._start()
        keeping = asyncio.ensure_future(self._keep()) if is_kept else None
        await self._act()
        if keeping is not None:
            await self._until("without a failed disk", lambda: not self._has_failed())
            keeping.cancel()
        await self._judge()

    async def _act(self) -> None:
        await self._do(self._create("t", cleanup_policy="delete"))
        await self._do(self._create("again"))
        await self._do(self._create("compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01"))
        await self._send(MOVED, 12)
        await self._send(LEFT, 12)
        await self._send(COMPACTED, 30, keys=3)
        await self._send(TopicPartition(MADE_AGAIN, 0), 3)
        await self._do(self._commit)
        await self._do(self._transact)
        await self._do(self._reassign([2, 1]))
        await self._do(lambda admin: admin.delete_topics([MADE_AGAIN]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self._send(MOVED, 4)
        await self._do(self._create(MADE_AGAIN))
        self._sent.pop(TopicPartition(MADE_AGAIN, 0))
        await self._send(TopicPartition(MADE_AGAIN, 0), 3)
        await self._do(self._reassign([self._number, 1]))
        await self._move_directory()
        await self._do(lambda admin: admin.delete_records({LEFT: 5}))
        async with self._turn:
            await self._stop()
            await self._send(MOVED, 3)
            await self._start()
        await self._send(MOVED, 4)
        async with self._turn:
            self._victim.kill(power_cut=False)
            await self._send(LEFT, 4)
            await self._start()
        await self._do(self._commit)
        await self._do(self._transact)
        for key in (MOVED, LEFT, COMPACTED, TopicPartition(MADE_AGAIN, 0), TopicPartition(MADE_AGAIN, 1)):
            await self._send(key, 2)

    def _has_failed(self) -> bool:
        broker = self._victim.broker
        return broker is None or broker.failure is not None or broker.partitions.offline_directory_count > 0

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(1)
            async with self._turn:
                if self._has_failed():
                    await asyncio.sleep(2)
                    self._victim.kill(power_cut=False)
                    await self._start()

    async def _stop(self) -> None:
        try:
            await self._victim.stop()
        except (OSError, KafkaError) as error:
            self._found(f"it did not stop: {error!r}")
            self._victim.kill(power_cut=False)

    def _found(self, what: str) -> None:
        """A finding, unless the disk has failed once: a process may end of it."""
        if not (self._result.may_end or self._result.needs_descriptors):
            self._result.findings.append(what)

    async def _start(self) -> None:
        """The process of the broker, once more where a refusal has ended its start."""
        try:
            await self._victim.start()
        except Exception as error:  # noqa: BLE001 - whatever it says
            self._found(f"it did not start: {error!r}")
            self._victim.kill(power_cut=False)
            await asyncio.sleep(FULL_SECONDS)
            await self._victim.start()

    def _client(self) -> SimClient:
        self._clients += 1
        return SimClient(self._simulation, f"client-{self._clients}", self._bootstrap, request_timeout_ms=5000)

    async def _do(self, ask: Callable[[Admin], Awaitable[Any]], *done: ErrorCode) -> None:
        """Until it is answered without an error but those that say that it was ``done``."""
        client = self._client()

        async def act() -> None:
            admin = Admin(client.cluster())
            async with asyncio.timeout(DO_SECONDS_MAX):
                while True:
                    try:
                        outcome = await ask(admin)
                    except KafkaError as error:
                        outcome = {"": error}
                    errors = [found for found in outcome.values() if isinstance(found, KafkaError)] if isinstance(outcome, dict) else []
                    if all(found.code in done for found in errors):
                        break
                    await asyncio.sleep(0.5)
            await admin.close()

        try:
            await client.machine.run(act())
        except TimeoutError:
            self._result.findings.append(f"it is never done: {ask}")

    def _create(self, topic: str, **configs: str) -> Callable[[Admin], Awaitable[Any]]:
        new = NewTopic(
            topic,
            assignments=dict(enumerate([[self._number, 1], [1, self._number]])),
            configs={k.replace("_", "."): v for k, v in configs.items()},
        )

        async def ask(admin: Admin) -> Any:
            [outcome] = (await admin.create_topics([new])).values()
            return {} if outcome is None or outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS else {topic: outcome}

        return ask

    def _reassign(self, replicas: list[int]) -> Callable[[Admin], Awaitable[Any]]:
        async def ask(admin: Admin) -> Any:
            [outcome] = (await admin.alter_partition_reassignments({MOVED: replicas})).values()
            if outcome is not None:
                return {MOVED: outcome}
            async with asyncio.timeout(DO_SECONDS_MAX):
                while await admin.list_partition_reassignments():
                    await asyncio.sleep(0.2)
            return {}

        return ask

    async def _move_directory(self) -> None:
        for path in (*DIRECTORIES, DIRECTORIES[0]):

            async def ask(admin: Admin, path: str = path) -> Any:
                outcome = await admin.alter_replica_log_dirs(self._number, {COMPACTED: path})
                if self._result.may_end and self._directory_of(COMPACTED) != path:  # a process that ends forgets what it has not begun
                    await asyncio.sleep(5)
                    return {path: KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "it is elsewhere")}
                return outcome

            await self._do(ask)
            await self._until(f"in {path}", lambda path=path: self._directory_of(COMPACTED) == path)  # type: ignore[misc]

    def _directory_of(self, key: TopicPartition) -> str | None:
        if self._victim.broker is None:
            return None
        partitions = self._victim.broker.partitions
        partition = partitions.find(key.topic, key.partition)
        return None if partition is None else partitions.directory_of[partition].path

    async def _send(self, key: TopicPartition, count: int, *, keys: int = 0) -> None:
        """Each in a batch of its own; sent again as another record where its time is over."""
        client = self._client()
        sent = self._sent.setdefault(key, [])

        async def act() -> None:
            producer = Producer(client.cluster(), ProducerSettings(acks="all", linger_ms=0, delivery_timeout_ms=DO_SECONDS_MAX * 1000))
            for number in range(count):
                value = b"%d of %d, " % (len(sent), number) + b"x" * 200
                await producer.send_and_wait(
                    key.topic, value, key=b"%d" % (number % keys) if keys else b"k%d" % len(sent), partition=key.partition
                )
                sent.append(value)
            await producer.close()

        try:
            await client.machine.run(act())
        except KafkaError as error:
            self._result.findings.append(f"{key} is never written to: {error}")

    async def _commit(self, admin: Admin) -> None:
        """Offsets of both groups' partitions."""
        client = self._client()

        async def act() -> None:
            for group in ("g0", "g1", "g2"):
                settings = ConsumerSettings(group_id=group, fetch=FetchSettings(auto_offset_reset="earliest"))
                consumer = Consumer(client.cluster(), settings)
                consumer.assign([LEFT])
                await consumer.commit({LEFT: 1})
                await consumer.close()

        await client.machine.run(act())

    async def _transact(self, admin: Admin) -> None:
        client = self._client()

        async def act() -> None:
            for number in range(2):
                settings = ProducerSettings(acks="all", transactional_id=f"id{number}", linger_ms=0, delivery_timeout_ms=60_000)
                producer = Producer(client.cluster(), settings)
                await producer.init_transactions()
                async with producer.transaction():
                    await producer.send(MOVED.topic, b"in a transaction", key=b"t", partition=0)
                    await producer.send(COMPACTED.topic, b"in a transaction", key=b"t", partition=0)
                await producer.close()

        await client.machine.run(act())

    async def _until(self, what: str, is_so: Callable[[], bool]) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HEAL_SECONDS_MAX
        while not is_so():
            if loop.time() > deadline:
                self._result.findings.append(f"it never is: {what}, {self._leftovers()[:5]}")
                return False
            await asyncio.sleep(0.1)
        return True

    async def _judge(self) -> None:
        broker = self._victim.broker
        assert broker is not None
        if broker.failure is not None:
            self._result.findings.append(f"the broker ended: {broker.failure}")
            return
        brokers = {node.node: node.broker for node in self._nodes} | {self._number: broker}

        def unwell() -> list[str]:
            active = next((found for found in brokers.values() if found is not None and found.controller.is_active), None)
            if active is None:
                return ["controller"]
            found = []
            for name, topic in active.image.topics.items():
                for index, partition in topic.partitions.items():
                    if set(partition.isr) != set(partition.replicas) or partition.adding or partition.leader < 0:
                        found.append(f"{name}-{index} {partition}")
                    for replica in partition.replicas:
                        node = brokers[replica]
                        here = None if node is None else node.partitions.find(name, index)
                        if here is None or here.log.is_failed or here.high_watermark < here.log.log_end_offset:
                            found.append(f"{name}-{index} on {replica}")
            return found

        if not await self._until("whole", lambda: not unwell()):
            self._result.findings += unwell()
            return
        await self._until("without leftovers", lambda: not self._leftovers())
        self._result.is_judged = True
        if broker.partitions.offline_directory_count:
            self._result.findings.append("a log directory is offline")
        await self._compare(brokers)

    def _leftovers(self) -> list[str]:
        disk = self._victim.machine.disk
        found = [path for path in [*disk.files, *disk.directories] if LEFTOVER.search(path)]
        return [path for path in found if "-stray" not in path] if self._result.may_end else found

    async def _compare(self, brokers: dict[int, Any]) -> None:
        """Replicas are equal, and have what was acknowledged."""
        for name, topic in brokers[1].image.topics.items():
            for index, partition in topic.partitions.items():
                logs = []
                for replica in partition.replicas:
                    here = brokers[replica].partitions.find(name, index)
                    reading = records_between(here.log, here.log.log_start_offset, here.high_watermark, check_crc=True)
                    logs.append([(record.offset, record.value) async for found in reading for record in found])
                    if name != COMPACTED.topic and not name.startswith("__") and logs[-1] != logs[0]:
                        self._result.findings.append(f"{name}-{index}: replicas differ: {[len(one) for one in logs]}")
                key = TopicPartition(name, index)
                sent = self._sent.get(key, [])
                for log in logs:
                    values = [value for _, value in log]
                    kept = sent[5:] if key == LEFT else sent[-2:] if key == COMPACTED else sent
                    if lost := [value for value in kept if value not in values]:
                        self._result.findings.append(f"{key}: lost {len(lost)} of {len(kept)}")
                    if key != COMPACTED and [value for value, count in Counter(v for v in values if v in sent).items() if count > 1]:
                        self._result.findings.append(f"{key}: doubled")


def refusals(quiet: Life) -> Sequence[Refusal]:
    """For each kind of operation of a life without one: the first, the last and one between."""
    found = []
    for operation, count in sorted(quiet.seen.items()):
        name, path = operation
        for nth in sorted({1, (count + 1) // 2, count}):
            if name in FULL and operation != ("sync_dir", "/D/METADATA"):
                found.append(Refusal(operation, nth, errno.ENOSPC))
            if name in NEED_ROOM:
                found.append(Refusal(operation, nth, errno.ENOSPC, lasts=True))
            if (
                name in DESCRIPTORS and "METADATA" not in path and path not in ("/D", "/D/.kafka_cleanshutdown")
            ):  # some are left for that log (runtime/descriptors.py)
                found.append(Refusal(operation, nth, errno.EMFILE))
            found.append(Refusal(operation, nth, errno.EIO))
            if operation in quiet.begun:
                found.append(Refusal(operation, nth, SLOW))
    return found


def main() -> int:
    share, shares = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (0, 1)
    failed = missed = count = 0
    for place in get_args(Place):
        quiet = live(None, place=place)
        if quiet.findings:
            sys.stdout.write(f"{place}, without a refusal: {quiet.findings}\n")
            return 1
        for refusal in refusals(quiet)[share::shares]:
            life = live(refusal, place=place)
            missed += not life.has_struck
            count += 1
            if life.findings:
                failed += 1
                sys.stdout.write(f"{place}, {refusal}: {life.findings[:4]} {dict(life.errors)}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{count} refusals, {failed} with findings, {missed} not met\n")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
