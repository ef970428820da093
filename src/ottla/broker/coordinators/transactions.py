"""The transaction coordinators of this broker, over ``__transaction_state``: what configures them, and who carries out their effects."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.coordinators.end_markers import EndMarkers
from ottla.broker.coordinators.marker_queues import MarkerQueues
from ottla.broker.coordinators.runtime import CoordinatorKind, CoordinatorRuntime, segment_size
from ottla.broker.coordinators.shard import Shard
from ottla.broker.peers.broker_peers import BrokerPeers
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import Slices
from ottla.config import BrokerConfig
from ottla.controller.features import TRANSACTION_VERSION
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.machine import StoredRecord
from ottla.ports import World
from ottla.transactions.coordinator import TransactionCoordinator, TransactionSettings
from ottla.transactions.effects import ReportMarker, TakeProducerId, WriteMarkers
from ottla.transactions.records import decode_record, encode_record
from ottla.types import TRANSACTION_STATE_TOPIC

log = get_logger(__name__)


class TransactionShards(CoordinatorRuntime[TransactionCoordinator]):
    """All transactional ids that this broker coordinates."""

    def __init__(self, world: World, config: BrokerConfig, controller: ActiveController, own: EndMarkers, *, to_brokers: World) -> None:
        super().__init__(world, config, controller, self._described(config))
        self.peers = BrokerPeers(to_brokers, config, lambda: controller.image, "transactions")
        self._marker_peers = BrokerPeers(to_brokers, config, lambda: controller.image, "markers")  # answered late, while replicas lag
        self.markers = MarkerQueues(world, config.node_id, controller, own, self._marker_peers)
        self.refused_marker_count = 0
        """Markers that a partition has refused, or answered with what is not foreseen."""

    def slices(self) -> Slices:
        """Returns slices for long work over what is asked."""
        return Slices(self._world.clock)

    @property
    def finalized_version(self) -> int:
        """The level of ``transaction.version`` that the cluster has."""
        return self._controller.image.features.get(TRANSACTION_VERSION, 0)

    def _described(self, config: BrokerConfig) -> CoordinatorKind[TransactionCoordinator]:
        return CoordinatorKind(
            name="transactional id",
            topic=TRANSACTION_STATE_TOPIC,
            count_key="transaction.state.log.num.partitions",
            factor_key="transaction.state.log.replication.factor",
            min_isr_key="transaction.state.log.min.isr",
            new_machine=lambda: TransactionCoordinator(_settings(config)),
            encode=self._encode,
            decode=decode_record,
            topic_configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                **segment_size(config["transaction.state.log.segment.bytes"]),
            },
            commit_ms_max=config["request.timeout.ms"],
            on_effect=self._on_effect,
        )

    def _encode(self, record: StoredRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record, transaction_version=self.finalized_version)

    def _on_effect(self, shard: Shard[Any], effect: Any) -> None:
        if isinstance(effect, WriteMarkers):
            self.markers.send(shard, effect)
        elif isinstance(effect, TakeProducerId):
            eager.run(self._controller.next_producer_id(), partial(_with_producer_id, shard, effect.command))
        else:
            assert isinstance(effect, ReportMarker), "there are no other effects"
            self.refused_marker_count += 1
            log.error(
                "end_marker_refused",
                transactional_id=effect.transactional_id,
                producer_id=effect.producer_id,
                producer_epoch=effect.producer_epoch,
                topic=effect.partition.topic,
                partition=effect.partition.partition,
                error_code=effect.error_code,
            )

    async def stop(self) -> None:
        await super().stop()
        self.markers.close()
        self.peers.close()
        self._marker_peers.close()


def _with_producer_id(shard: Shard[Any], command: Any, producer_id: int | None, error: BaseException | None) -> None:
    """Has what lacked a producer id decided again. A timeout that gets none is looked at once more in some seconds."""
    token = getattr(command, "token", None)
    if producer_id is not None:
        again = replace(command, fresh_producer_id=producer_id)
        if token is None:
            shard.tell(again)
        else:
            shard.ask_again(again)
    elif token is not None:
        shard.refuse(token, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no controller gives producer ids: {error}"))


def _settings(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        timeout_ms_max=config["transaction.max.timeout.ms"],
        timeout_check_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        id_expiration_ms=config["transactional.id.expiration.ms"],
        expiration_check_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
    )
