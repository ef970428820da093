"""What ``ottla cluster health`` has seen of a cluster, and what it finds wrong with it, as values: ``--json`` has both."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.cli.health_partitions import PartitionStates
from ottla.cli.quorum_health import Voter, has_majority
from ottla.cli.throttles import Throttles
from ottla.cli.unanswered_health import brought_back
from ottla.cli.unseen_topics import Unseen


@dataclass(slots=True)
class Health:
    """``controller`` is None where no controller is active; ``silent`` are brokers that serve, and did not answer for themselves.

    In ZooKeeper mode there are no voters and no epoch, and a broker that is down is not registered. Where no controller is active, or a
    voter is silent, ``configured_voters`` are what a broker's configuration names, and ``unreachable_voters`` take no connection.
    """

    cluster_id: str
    brokers: list[int]
    fenced: list[int]
    controller: int | None
    epoch: int
    voters: list[Voter]
    controller_problem: str | None
    partitions: PartitionStates
    log_dir_count: int
    offline_log_dirs: list[tuple[int, str]]
    silent: list[int]
    is_in_zookeeper: bool = False
    unclean_elections: int = 0  # of the active controller, since its start
    unanswered: dict[int, str] = field(default_factory=dict)  # why: of the silent ones, and of those that let the one who looks not in
    controller_silence: str | None = None  # of one that is active, as far as brokers know
    full_log_dirs: list[tuple[int, str]] = field(default_factory=list)
    largest: dict[str, str] = field(default_factory=dict)  # by BROKER:DIRECTORY that is full: its largest replicas
    lags: dict[int, int] = field(default_factory=dict)  # by broker: the records that its replicas lack, as far as they know
    configured_voters: dict[int, str] = field(default_factory=dict)
    unreachable_voters: list[int] = field(default_factory=list)
    default_replicas: int = 1  # of a topic that is created without a number
    hanging: dict[int, str] = field(default_factory=dict)  # fenced, and a process takes connections at the address
    paused: dict[int, int] = field(default_factory=dict)  # by SIGSTOP: the processes of brokers of this machine
    other_voters: dict[int, str] = field(default_factory=dict)  # of brokers that have other controllers than most
    dead_addresses: dict[int, dict[int, str]] = field(default_factory=dict)  # by broker: of voters in its list, where nothing listens
    unopened_reasons: dict[int, dict[str, str]] = field(default_factory=dict)  # by broker: why it cannot open replicas, as far as it says
    throttles: Throttles | None = None
    is_moving: bool = False  # replicas of some partitions
    unseen: Unseen | None = None  # topics that the user may not describe
    notes: list[str] = field(default_factory=list)  # what is no problem, and worth knowing

    @property
    def can_decide(self) -> bool:
        """Whether a majority of the controllers is known to run: replicas leave the ISR, and others lead."""
        if self.controller is None or self.controller_silence is not None:
            return False
        return self.is_in_zookeeper or has_majority(self.voters, self.silent)

    def back(self, brokers: list[int]) -> str:
        """Returns what brings brokers back that do not serve."""
        return brought_back(brokers, self.paused, self.hanging)


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, and the way out."""

    problem: str
    remedy: str
    nodes: tuple[int, ...] = ()  # which this is about
    kind: str = ""
    """What a program may go by: it stays the same where the text is worded better."""
