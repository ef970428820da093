"""Whether a broker is alive, and whether it should be sent clients."""

from __future__ import annotations

from ottla.broker.status import Status


def liveness(_: Status) -> dict[str, object]:
    """Reports that the process lives: the loop answers."""
    return {"status": "alive"}


def readiness(status: Status) -> dict[str, object]:
    """Returns ``ready`` when clients are let in and what they ask for is there; else the reasons why not."""
    reasons = []
    if not status.is_open:
        reasons.append("the listeners are closed: the broker is starting or stopping")
    if status.is_held:
        reasons.append("queued.max.requests requests are waiting for the disk")
    failed = sorted(f"{partition.topic}-{partition.index}" for partition in status.partitions.all() if partition.log.is_failed)
    if failed:
        reasons.append(f"{len(failed)} partitions have failed: {', '.join(failed[:10])}")
    leaderless = sum(map(len, status.image.index.leaderless.values()))
    if leaderless:
        reasons.append(f"{leaderless} partitions have no leader")
    return {"status": "not ready" if reasons else "ready", "reasons": reasons, "node_id": status.node_id, "cluster_id": status.cluster_id}
