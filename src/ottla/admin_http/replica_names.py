"""Metrics of this broker's replicas under the names that Kafka's dashboards read.

There may be very many replicas, so all of this pauses, and clients have their turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.admin_http.exposition import Family, Sample, counter, gauge
from ottla.broker.replicas.partition import Partition
from ottla.broker.status import Status
from ottla.broker.tasks.slices import Slices
from ottla.controller.reassignment import is_moving
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.types import LATE_TRANSACTION_MS


class _Replica(NamedTuple):
    """A replica as of the moment in which the page was asked for; ``spare`` in-sync replicas more than acks=all needs."""

    partition: Partition
    image: PartitionImage
    spare: int


async def replica_families(status: Status, slices: Slices, *, now_ms: int) -> list[Family]:
    """Returns what all replicas together are counted for."""
    partition_count = led_count = under = under_min = at_min = offline = moving = producers = late = lag_max = 0
    node_id, begun_before_ms = status.node_id, now_ms - status.parts.config["transaction.max.timeout.ms"] - LATE_TRANSACTION_MS
    async for partition, image, spare in slices.over(_replicas(status)):
        partition_count += 1
        producers += len(partition.log.producers)
        offline += partition.log.is_failed
        late += partition.log.producers.has_open_since(begun_before_ms)
        lag_max = max(lag_max, partition.lag or 0)
        if image.leader != node_id:
            continue
        led_count += 1
        under += len(image.isr) < len(image.replicas) - len(image.adding)
        under_min += spare < 0
        at_min += spare == 0
        moving += is_moving(image)
    families = [
        gauge(f"kafka_server_replicamanager_{name}", text, value)
        for name, text, value in (
            ("partitioncount", "Partitions of this broker.", partition_count),
            ("leadercount", "Partitions that this broker leads.", led_count),
            ("underreplicatedpartitions", "Partitions led here with replicas out of sync.", under),
            ("underminisrpartitioncount", "Partitions led here with too few in sync for acks=all.", under_min),
            ("atminisrpartitioncount", "Partitions led here with no replica in sync to spare.", at_min),
            ("offlinereplicacount", "Replicas of this broker that are offline.", offline + len(status.partitions.offline)),
            ("reassigningpartitions", "Partitions led here that are being moved.", moving),
            (
                "partitionswithlatetransactionscount",
                "Partitions with a transaction that is open for longer than any may be.",
                late,
            ),
            ("produceridcount", "Producers whose sequence numbers are remembered.", producers),
        )
    ]
    text = "The most records that one of the replicas which follow a leader lacks."
    families.append(gauge("kafka_server_replicafetchermanager_maxlag", text, lag_max))
    failed = status.partitions.offline_directory_count
    families.append(gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that have failed.", failed))
    damage = status.partitions.replication.damage
    for name, text, value in (
        ("log_cuts", "Files of logs that a recovery has cut, since the start.", damage.cuts),
        ("log_cut_bytes", "Bytes that recoveries have cut off from logs, since the start.", damage.cut_bytes),
        ("damaged_segments", "Segments that were found damaged, since the start.", damage.damaged_segments),
        ("missing_replicas", "Replicas whose directories the start did not find, or were removed since.", damage.missing_replicas),
    ):
        families.append(counter(f"ottla_{name}_total", text, value))
    meters = status.partitions.replication.isr_meters
    for name, text, value in (
        ("isrshrinks", "How often a leader on this broker removed replicas from the in-sync replicas.", meters.shrinks),
        ("isrexpands", "How often a leader on this broker added replicas to the in-sync replicas.", meters.expands),
        ("failedisrupdates", "Changes of in-sync replicas that the controller refused, or did not answer.", meters.failed),
    ):
        families.append(counter(f"kafka_server_replicamanager_{name}_total", text, value))
    return families


async def partition_families(status: Status, slices: Slices) -> list[Family]:
    """Returns four series for each partition, and for each that is led here two more and one for each follower; else its lag."""
    sizes, counts, starts, ends, under, at, own_lags, lags = (list[Sample]() for _ in range(8))
    node_id = status.node_id
    async for partition, image, spare in slices.over(_replicas(status)):
        labels, found = (("topic", partition.topic), ("partition", str(partition.index))), partition.log
        sizes.append(Sample(found.size_bytes, labels))
        counts.append(Sample(len(found.segments), labels))
        starts.append(Sample(found.log_start_offset, labels))
        ends.append(Sample(found.log_end_offset, labels))
        if image.leader == node_id:
            under.append(Sample(int(spare < 0), labels))
            at.append(Sample(int(spare == 0), labels))
        if partition.followed is not None:
            own_lags += [] if partition.lag is None else [Sample(partition.lag, labels)]
        elif partition.leading is not None:
            lags += [Sample(lag, (*labels, ("replica", str(node)))) for node, lag in partition.leading.lags().items()]
    return [
        Family(name, "gauge", text, samples, ("topic", "partition", *(("replica",) if samples is lags else ())))
        for name, text, samples in (
            ("kafka_log_log_size", "Bytes in the log.", sizes),
            ("kafka_log_log_numlogsegments", "Segments of the log.", counts),
            ("kafka_log_log_logstartoffset", "The first offset that can be read.", starts),
            ("kafka_log_log_logendoffset", "The offset that the next record gets.", ends),
            ("kafka_cluster_partition_underminisr", "Whether fewer replicas are in sync than acks=all needs.", under),
            ("kafka_cluster_partition_atminisr", "Whether just as many replicas are in sync as acks=all needs.", at),
            (
                "kafka_server_fetcherlagmetrics_consumerlag",
                "Committed records that this follower lacks, once it knows.",
                own_lags,
            ),
            ("ottla_replica_lag", "Records of this leader's log that the replica lacks.", lags),
        )
    ]


def _replicas(status: Status) -> Iterable[_Replica]:
    """Returns the replicas with what the image of this moment says of them: a topic may be deleted before its turn comes."""
    return _in(status.image, status.partitions.all())


def _in(image: ClusterImage, partitions: Iterable[Partition]) -> Iterator[_Replica]:
    for partition in partitions:
        found = image.topics[partition.topic].partitions[partition.index]
        yield _Replica(partition, found, len(found.isr) - min(partition.log.config.min_insync_replicas, len(found.replicas)))
