"""What leaders ask the active controller for: other in-sync replicas of their partitions, many in one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.controller.active_controller import ActiveController
from ottla.controller.brokers import check_epoch
from ottla.controller.decided import Recorded
from ottla.controller.isr_changes import WantedIsr, alter_isr
from ottla.controller.partition_change import SAME_LEADER
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import ClusterImage, PartitionImage


async def alter_isrs(
    controller: ActiveController, broker_id: int, epoch: int, wanted: Sequence[WantedIsr]
) -> list[PartitionImage | KafkaError]:
    """Returns the partitions after each change, recorded. KafkaError for the whole when the broker is not who it was.

    NEW_LEADER_ELECTED where the change completes a reassignment, and with it the leader goes.
    """

    def changing(change: WantedIsr) -> Callable[[ClusterImage], Recorded]:
        def decide(image: ClusterImage) -> Recorded:
            check_epoch(image, broker_id, epoch)
            return alter_isr(image, change, rules=controller.rules(image))

        return decide

    def look(image: ClusterImage) -> Recorded:
        check_epoch(image, broker_id, epoch)
        return Recorded(())

    refusal, *results = await controller.decide([look, *map(changing, wanted)], is_followed=False)
    if isinstance(refusal, KafkaError):
        raise refusal
    image = controller.image
    return [_outcome(image, broker_id, change, result) for change, result in zip(wanted, results, strict=True)]


def _outcome(image: ClusterImage, broker_id: int, change: WantedIsr, result: Recorded | KafkaError) -> PartitionImage | KafkaError:
    if isinstance(result, KafkaError):
        return result
    if any(isinstance(record, PartitionChangeRecord) and record.leader not in (SAME_LEADER, broker_id) for record in result.records):
        return KafkaError(ErrorCode.NEW_LEADER_ELECTED, f"broker {broker_id} is not a replica of the partition any more")
    topic = image.topics.get(image.topic_names.get(change.topic_id, ""))
    if topic is None or change.index not in topic.partitions:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "the topic was deleted meanwhile")
    return topic.partitions[change.index]
