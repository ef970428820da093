"""Which nodes of the metadata quorum still fetch, as its leader sees them: a voter that is down stays in the leader's list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.client.admin import QuorumDescription, QuorumReplica

SILENT: Final = "silent"
ENDED: Final = "ended"
SILENT_MS_MAX: Final = 5_000
"""A voter fetches the metadata log at least every half second."""
FENCED_SILENT_MS_MAX: Final = 1_000
"""Of a node whose broker is fenced: the broker has most probably ended, and the controller with it."""
NONE_IN_ZOOKEEPER: Final = "none is elected in ZooKeeper, or the brokers do not reach it"
NOT_SHOWN: Final = "this user may not see the quorum, which takes DESCRIBE on the cluster"


def may_not_look(error: Exception) -> bool:
    """Returns whether the quorum was not shown for want of a right: it may be well all the same."""
    return isinstance(error, KafkaError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def leader_of(quorum: QuorumDescription) -> QuorumReplica:
    """Returns the voter that leads."""
    return next(voter for voter in quorum.voters if voter.node_id == quorum.leader_id)


def fetched_ms_ago(quorum: QuorumDescription, replica: QuorumReplica) -> int | None:
    """Returns how long ago the replica last fetched, by the leader's clock; None where it has not, since the leader leads."""
    now_ms = leader_of(quorum).last_fetch_ms  # the leader itself counts as having fetched just now
    return now_ms - replica.last_fetch_ms if replica.last_fetch_ms >= 0 else None


def behind_ms(quorum: QuorumDescription, replica: QuorumReplica, lag: int) -> int | None:
    """Returns for how long the replica has lacked records, by the leader's clock; None where it has not had all since the leader leads.

    The clock is not that of its last fetch: a node that has ended had all records then, and 0 ms would be shown for ever.
    """
    if lag <= 0:
        return 0
    return leader_of(quorum).last_fetch_ms - replica.last_caught_up_ms if replica.last_caught_up_ms >= 0 else None


def is_silent(quorum: QuorumDescription, replica: QuorumReplica, fenced: Collection[int]) -> bool:
    """True when the replica has not fetched for ``SILENT_MS_MAX``, or never since the leader leads; ``fenced`` are brokers."""
    ago = fetched_ms_ago(quorum, replica)
    limit_ms = FENCED_SILENT_MS_MAX if replica.node_id in fenced else SILENT_MS_MAX
    return replica.end_offset < 0 or (ago is not None and ago > limit_ms)


def observers_of(quorum: QuorumDescription, registered: Collection[int]) -> list[QuorumReplica]:
    """Returns the observers without brokers that have left the cluster: the leader lists each for minutes after its last fetch."""
    return [replica for replica in quorum.observers if replica.node_id in registered or not is_silent(quorum, replica, ())]


def controller_text(state: str | None, ago_ms: int | None) -> str | None:
    """Returns what a table says of a controller: of a silent one, for how long."""
    return f"{state} for {ago_ms // 1000} s" if state == SILENT and ago_ms is not None else state
