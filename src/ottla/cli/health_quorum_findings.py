"""What is wrong with the controllers of a cluster, as ``ottla cluster health`` has seen them, and what mends that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.cli.health_seen import Finding, Health
from ottla.cli.quorum_health import Voter, spare
from ottla.cli.starting import HOW_TO_START
from ottla.cli.unanswered_health import named

LAG_MS_MAX: Final = 10_000
"""For so long a controller that fetches may lack records: one that has just started may."""
_ZOOKEEPER: Final = "see that ZooKeeper runs and the brokers reach it (zookeeper.connect): `ottla cluster status`"
_WRITE_THE_SAME: Final = "write the same list in the files of all nodes (`ottla config lint FILE...` compares them), and restart"


def quorum_findings(health: Health) -> Iterator[Finding]:
    """Yields why nothing is decided, where nothing is, and which brokers have other controllers in their lists."""
    if health.controller is None:
        yield Finding(
            f"no controller is active: nothing can be created or changed, no leader elected, and what brokers and partitions show "
            f"may be old ({health.controller_problem})",
            _ZOOKEEPER if health.is_in_zookeeper else _start_voters(health),
            kind="no_controller",
        )
    elif health.controller_silence is not None:
        yield Finding(
            f"controller {health.controller} does not answer: nothing can be created or changed, and no leader elected "
            f"({health.controller_silence})",
            _ZOOKEEPER if health.is_in_zookeeper else "see whether a majority of the controllers runs and keeps up: `ottla quorum`",
            kind="controller_silent",
        )
    if health.other_voters:
        yield Finding(*_other_voters(health), tuple(sorted(health.other_voters)), kind="voters_differ")
    for broker, dead in sorted(health.dead_addresses.items()):
        yield Finding(*_dead_addresses(broker, dead), (broker,), kind="voter_address_wrong")


def voter_findings(health: Health) -> Iterator[Finding]:
    """Yields which controllers do not follow the active one."""
    for voter in health.voters:
        found = _of_voter(voter, health)
        if found is not None:
            yield Finding(
                found[0],
                f"{found[1]}; {spare(health.voters, health.silent)}",
                (voter.node_id,),
                kind="voter_down" if voter.state else "voter_lags",
            )


def _of_voter(voter: Voter, health: Health) -> tuple[str, str] | None:
    if voter.has_ended:
        where = health.configured_voters[voter.node_id]
        problem = f"controller {voter.node_id} has ended: nothing listens at {where}, and it does not fetch the metadata log"
        return problem, f"start node {voter.node_id} ({HOW_TO_START.format(voter.node_id)})"
    if voter.is_silent:
        is_new = voter.fetched_ms_ago is None or voter.lag < 0
        since = f"has not fetched since {health.controller} leads"
        last = since if is_new else f"last fetched {(voter.fetched_ms_ago or 0) // 1000} s ago"
        return f"controller {voter.node_id} does not follow the metadata log: it {last}", _return_of(voter.node_id, health)
    if voter.lags_for_ms is not None and voter.lags_for_ms > LAG_MS_MAX:
        lacks = f"it lacks {voter.lag} records of the metadata log, and last had all {voter.lags_for_ms // 1000} s ago"
        return f"controller {voter.node_id} lags: {lacks}", "see whether its disk and its network keep up (`ottla quorum`)"
    return None


def _other_voters(health: Health) -> tuple[str, str]:
    """Returns what is wrong with the voters of some brokers, and the way out."""
    lists = "; ".join(f"{broker}: {voters}" for broker, voters in sorted(health.other_voters.items()))
    others = sorted(health.other_voters)
    has = "has" if len(others) == 1 else "have"
    problem = f"{named(others)} {has} other controllers in controller.quorum.voters than the rest ({lists}): they count another majority"
    way = f"{_WRITE_THE_SAME} these one after the other"
    return problem, f"{way}; a list is changed only as docs/operating.md says (Replace a lost controller)"


def _dead_addresses(broker: int, dead: dict[int, str]) -> tuple[str, str]:
    """Returns what is wrong with a broker that has wrong addresses of controllers, and the way out."""
    lists = ", ".join(f"{voter}@{address}" for voter, address in sorted(dead.items()))
    which = f"controller{'s'[: len(dead) != 1]} {', '.join(map(str, sorted(dead)))}"
    problem = f"broker {broker} has {lists} in controller.quorum.voters, where nothing listens: others have another port"
    cannot = f"it cannot follow {which}, nor be elected by {'it' if len(dead) == 1 else 'them'}"
    return f"{problem}; {cannot}", f"{_WRITE_THE_SAME} node {broker}"


def _return_of(voter: int, health: Health) -> str:
    """Returns what brings a silent voter back: a start, or, where its process runs, a look at why it cannot join."""
    if health.controller in health.dead_addresses.get(voter, {}):
        return f"mend its list, as above (`ottla config lint FILE...`): controller {health.controller} listens at another port"
    address = health.configured_voters.get(voter)
    if address is None or voter in health.unreachable_voters:
        return f"start node {voter} ({HOW_TO_START.format(voter)}), or see what cuts it off from controller {health.controller}"
    causes = f"it is stopped (SIGSTOP) or hangs, was turned away, or cannot reach controller {health.controller}"
    return f"its process takes connections at {address}: {causes}; its log says why, at node_waits and the warnings before it"


def _start_voters(health: Health) -> str:
    """Returns what to start where no controller is active, by name as far as the names are known, and which lists are to be mended."""
    voters, down = health.configured_voters, health.unreachable_voters
    if not voters:
        return f"start the voters of controller.quorum.voters that are down, of which a majority must run ({HOW_TO_START.format('NODE')})"
    misled = sorted(health.dead_addresses)
    cause = f"mend the list of {named(misled)}, as below, which keeps controllers that run from electing one of them" if misled else ""
    count = f"of {len(voters)} controllers {len(voters) // 2 + 1} must run"
    if not down:
        logs = cause or "look at their logs, and at the network between them"
        return f"all controllers take connections from here, and {count}: {logs}"
    names = ", ".join(f"{node} ({voters[node]})" for node in down)
    numbers = "NODE" if len(down) > 1 else str(down[0])
    verb = "s" if len(down) == 1 else ""
    start = f"start controller{'s'[: len(down) != 1]} {names}, which take{verb} no connection ({HOW_TO_START.format(numbers)})"
    return f"{start}: {count}{'; ' * bool(cause)}{cause}"
