"""The coordinators of one kind that this broker has: one replicated machine for each partition that it leads of an internal topic.

What a key belongs to (a group id, say) is partition ``hash(key) mod partition count``, with Java's string hash, so that every broker and
tool agrees. A *kind* says what differs: the topic, the machine, the form of its records, and what becomes of its effects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.coordinators.batches import EncodeRecord
from ottla.broker.coordinators.shard import RETRY_MS, DecodeRecord, Shard, no_effect
from ottla.broker.part import Part
from ottla.broker.replicas.partition import Partition
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.config.registry import SEGMENT_BYTES_MIN
from ottla.controller.topics import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.machine import Command, ReplicatedMachine, Token
from ottla.metadata.image import ClusterImage
from ottla.ports import Clock, World
from ottla.types import NO_LEADER, TopicPartition

log = get_logger(__name__)
KEY_KEPT_MAX: Final = 255
"""Longer keys are hashed each time: thousands of them would fill the memory."""
LOOKED_MS: Final = 500
"""How long the questions of one request wait, all together, for shards that have yet to commit something."""
M = TypeVar("M", bound=ReplicatedMachine)
R = TypeVar("R")


class Patience:
    """``left_ms`` is how long a question of the request waits for a commit: none at all, where questions before it have waited."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms = clock.monotonic_ms() + LOOKED_MS

    @property
    def left_ms(self) -> int:
        return max(0, self._until_ms - self._clock.monotonic_ms())


class CoordinatorKind(Struct, Generic[M], frozen=True):
    """``name`` is what a key names, in texts and events; ``count_key`` and ``factor_key`` configure the topic."""

    name: str
    topic: str
    count_key: str
    factor_key: str
    new_machine: Callable[[], M]
    encode: EncodeRecord
    decode: DecodeRecord
    topic_configs: dict[str, str | None]
    commit_ms_max: int
    on_effect: Callable[[Any, Any], None] = no_effect
    """Has others do what a decision of the shard wants of them, once its records are committed."""
    min_isr_key: str | None = None
    """Configures how many replicas of the topic must be in sync; with fewer replicas, all of them."""


class CoordinatorRuntime(Part, Generic[M]):
    """The coordinators of one kind on one broker."""

    def __init__(self, world: World, config: BrokerConfig, controller: ActiveController, kind: CoordinatorKind[M]) -> None:
        self._world = world
        self._config = config
        self._controller = controller
        self._kind = kind
        self._shards: dict[int, Shard[M]] = {}  # of the partitions that this broker leads: one each, of the epoch that it leads in
        self._is_closed = False
        self._node_id = config.node_id
        self.load_ms_max = 0
        """The longest time that loading a partition has taken."""

    @property
    def image(self) -> ClusterImage:
        """The newest committed image of the cluster."""
        return self._controller.image

    def partition_for(self, key: str) -> TopicPartition:
        """Returns the partition that keeps what the key names. COORDINATOR_NOT_AVAILABLE while this broker does not know the topic."""
        name = self._kind.topic
        topic = self._controller.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} is being made")
        return TopicPartition(name, partition_of(key, len(topic.partitions)))

    def leader_of(self, key: str) -> int:
        """Returns the broker that coordinates what the key names; NO_LEADER while there is none."""
        topic = self._controller.image.topics.get(self._kind.topic)
        return topic.partitions[partition_of(key, len(topic.partitions))].leader if topic else NO_LEADER

    async def ensure_topic(self) -> None:
        """Makes sure that the topic exists, and that this broker has opened its share of it.

        Without a configured replication factor it has three replicas, where there are so many brokers.
        """
        kind, config = self._kind, self._config
        known = self._controller.image.topics.get(kind.topic)
        if known is not None:
            if any(partition.leader == self._node_id and index not in self._shards for index, partition in known.partitions.items()):
                await self._controller.published()  # another request has it made just now
            return
        factor = config[kind.factor_key]
        smallest = factor if config.is_given(kind.factor_key) else 1
        if smallest == 1 and not self._controller.replicates:
            factor = 1
        count = config[kind.count_key]
        while True:  # the controller knows how many brokers there are, with those that are down
            configs = dict(kind.topic_configs)
            if kind.min_isr_key is not None:
                configs["min.insync.replicas"] = str(min(config[kind.min_isr_key], factor))
            [result] = await self._controller.create_topics([NewTopic(kind.topic, count, factor, configs=configs)])
            is_too_large = isinstance(result, KafkaError) and result.code == ErrorCode.INVALID_REPLICATION_FACTOR
            if not is_too_large or factor <= smallest:
                break
            factor -= 1
        if isinstance(result, KafkaError) and result.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            await self._controller.published()
        elif isinstance(result, KafkaError):
            log.error(f"{kind.name}_topic_not_created", reason=result.message)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, result.message)

    def on_role(self, partition: Partition) -> None:
        """Follows a change of role: the broker leads the partition in another epoch, or no longer, or it was deleted.

        The last epoch's shard is closed, and one of the new epoch starts to load: requests for its keys get COORDINATOR_LOAD_IN_PROGRESS
        until that is done.
        """
        if partition.topic != self._kind.topic:
            return
        known = self._shards.get(partition.index)
        if known is not None:
            if known.partition is partition and known.leader_epoch == partition.led_epoch:
                return
            if known.partition is not partition and partition.led_epoch < 0:
                return  # of a topic that was deleted, and another one of its name is served already
            self._shards.pop(partition.index).close()
        if partition.led_epoch >= 0 and not self._is_closed:
            self._open(partition)

    def _open(self, partition: Partition) -> None:
        kind = self._kind
        shard = self._shards[partition.index] = Shard(
            self._world, partition, kind.new_machine(), kind.encode, kind.decode, lambda: self._reopen(partition),
            commit_ms_max=kind.commit_ms_max, on_effect=kind.on_effect,
        )  # fmt: skip
        eager.run(shard.load(), partial(self._note_load, self._world.clock.monotonic_ms()))

    def _note_load(self, began_ms: int, _: None, error: BaseException | None) -> None:
        self.load_ms_max = max(self.load_ms_max, self._world.clock.monotonic_ms() - began_ms)
        if error is not None and not isinstance(error, asyncio.CancelledError):  # cancelled: the node has stopped
            log.error(f"{self._kind.name}s_not_loaded", exc_info=error)

    def _reopen(self, partition: Partition) -> None:
        """Reloads the machine, which has what the log did not take, or drops it if the log has failed.

        What a load leads to may be refused as well, by a disk that is full: the next load waits a while then.
        """
        shard = self._shards.pop(partition.index)
        shard.close()
        age_ms = self._world.clock.monotonic_ms() - shard.opened_ms
        if age_ms < RETRY_MS:
            self._world.timers.call_later_ms(RETRY_MS - age_ms, lambda: self._open_again(partition))
        else:
            self._open_again(partition)

    def _open_again(self, partition: Partition) -> None:
        if partition.index not in self._shards and partition.led_epoch >= 0 and not (partition.log.is_failed or self._is_closed):
            self._open(partition)

    async def stop(self) -> None:
        """Stops all coordination here."""
        self._is_closed = True
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()

    def tell_all(self, command: Command[Any]) -> None:
        """Gives the command to every shard of this broker; no caller waits for that."""
        for shard in list(self._shards.values()):  # one whose log refuses the decision is replaced at once
            shard.tell(command)

    async def ask(self, key: str, make_command: Callable[[Token], Command[R]]) -> R:
        """Returns the reply of the key's coordinator. NOT_COORDINATOR when it is not here, COORDINATOR_LOAD_IN_PROGRESS while it loads."""
        return await self.shard_of(key).ask(make_command)

    async def ask_partition(self, index: int, make_command: Callable[[Token], Command[R]]) -> R:
        """Asks the coordinator over that partition, as ``ask`` does."""
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"partition {index} of {self._kind.topic} is not led here")
        return await shard.ask(make_command)

    async def ask_all(self, make_command: Callable[[Token], Command[R]]) -> list[R]:
        """Returns one reply from each shard of this broker, except shards that it loses meanwhile. KafkaError while one of them loads."""
        replies = []
        for shard in list(self._shards.values()):
            try:
                replies.append(await shard.ask(make_command))
            except KafkaError as error:
                if error.code != ErrorCode.NOT_COORDINATOR:
                    raise
        return replies

    async def list_all(self, make_command: Callable[[Token], Command[R]]) -> list[R]:
        """Returns what ``ask_all`` does, each reply by what the shard has if it cannot commit that in time: it must not hide the others."""
        patience = Patience(self._world.clock)
        asked = [eager.start(self._seen(shard, make_command, patience)) for shard in self._shards.values()]
        replies = []
        for reply in await asyncio.gather(*asked, return_exceptions=True):
            if not isinstance(reply, BaseException):
                replies.append(reply)
            elif not isinstance(reply, KafkaError) or reply.code != ErrorCode.NOT_COORDINATOR:
                raise reply
        return replies

    async def look_up(self, key: str, make_command: Callable[[Token], Command[R]], patience: Patience) -> R:
        """Returns the reply of the key's coordinator to a question that changes nothing. KafkaError as of ``ask``.

        A coordinator that lacks replicas or room answers by what it has when ``patience`` is at its end: Kafka's never wait.
        """
        return await self._seen(self.shard_of(key), make_command, patience)

    async def _seen(self, shard: Shard[M], make_command: Callable[[Token], Command[R]], patience: Patience) -> R:
        asked: list[Token] = []

        def made(token: Token) -> Command[R]:
            asked.append(token)
            return make_command(token)

        def end() -> None:
            for token in asked:
                shard.refuse(token, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        limit = self._world.timers.call_later_ms(patience.left_ms, end)
        try:
            return await shard.ask(made)
        except KafkaError as error:
            if error.code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise
        finally:
            limit.cancel()
        reply = shard.look(make_command)
        if isinstance(reply, KafkaError):
            raise reply
        return reply

    def shard_of(self, key: str) -> Shard[M]:
        """Returns the shard of the key. KafkaError as of ``ask``."""
        kind = self._kind
        topic = self._controller.image.topics.get(kind.topic)
        index = partition_of(key, len(topic.partitions)) if topic is not None else 0
        shard = self._shards.get(index)
        if topic is None or shard is None:
            if topic is not None and topic.partitions[index].leader == self._node_id:
                text = f"the coordinator of {kind.name} {key!r} is about to be loaded"
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{kind.name} {key!r} is not coordinated here")
        return shard


def partition_of(key: str, count: int) -> int:
    """Returns the partition: Java's ``String.hashCode`` without its sign, modulo the partitions."""
    return (_known_hash(key) if len(key) <= KEY_KEPT_MAX else _hash(key)) % count


def _hash(key: str) -> int:
    code = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code & 0x7FFFFFFF


_known_hash = lru_cache(maxsize=4096)(_hash)


def segment_size(size_bytes: int) -> dict[str, str | None]:
    """Returns the topic's configuration; a size that no topic of a client may have is an internal one."""
    return {"segment.bytes" if size_bytes >= SEGMENT_BYTES_MIN else "internal.segment.bytes": str(size_bytes)}
