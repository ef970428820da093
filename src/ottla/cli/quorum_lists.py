"""The lists of voters that brokers have, compared: other ids, other ports, and addresses at which nothing listens.

A controller may have two listeners, so ports may differ while nodes move from the one to the other. An address that refuses connections
is wrong, where the controller takes them at another one: the broker that has it cannot follow that controller, nor be elected by it.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from ottla.cli.quorum_states import is_silent
from ottla.cli.quorum_voters import listening, refusing, voters_in

if TYPE_CHECKING:
    from ottla.client.admin import QuorumDescription

OTHER_PORTS: Final = (
    "broker {} has other ports in controller.quorum.voters than most ({}): right while controllers move to another listener, "
    "otherwise compare the files of the nodes (`ottla config lint`)"
)
Lists = Mapping[int, str]
DeadAddresses = dict[int, dict[int, str]]


def other_voters(lists: Lists, known: Collection[int] = ()) -> dict[int, str]:
    """Returns the lists of voters that have other ids than most; ``known`` are the voters by the quorum's leader, which are right."""
    if not lists:
        return {}
    ids = {node: frozenset(voters_in(text)) for node, text in lists.items()}
    usual = frozenset(known) or Counter(ids.values()).most_common(1)[0][0]
    return {node: text for node, text in lists.items() if ids[node] != usual}


def other_ports(lists: Lists) -> dict[int, str]:
    """Returns the lists of voters that have other ports than most. A host may have two names."""
    ports = {node: frozenset((voter, _port(at)) for voter, at in voters_in(text).items()) for node, text in lists.items()}
    usual = Counter(ports.values()).most_common(1)[0][0] if ports else None
    return {node: text for node, text in lists.items() if ports[node] != usual}


def dead_addresses(lists: Lists, quorum: QuorumDescription | None) -> DeadAddresses:
    """Returns by broker the addresses of its list at which nothing listens, while the same voter does at one of another broker's list.

    Tried is what differs by port. A broker that fetches from the leader reaches it, whatever is seen from here. A loopback address
    means another machine where it is asked from: it proves nothing of a voter that others have at one of the network.
    """
    found = {node: voters_in(text) for node, text in lists.items()}
    ports: dict[int, set[str]] = {}
    for voters in found.values():
        for voter, address in voters.items():
            ports.setdefault(voter, set()).add(_port(address))
    addresses = sorted({(voter, at) for voters in found.values() for voter, at in voters.items() if len(ports[voter]) > 1})
    numbered = dict(enumerate(at for _, at in addresses))
    refused = {addresses[number] for number in refusing(numbered)}
    taken = {addresses[number] for number in listening(numbered)} if refused else set()
    replicas = (*quorum.voters, *quorum.observers) if quorum is not None else ()
    follows = {replica.node_id for replica in replicas if quorum is not None and not is_silent(quorum, replica, ())}
    dead: DeadAddresses = {}
    for broker, voters in found.items():
        for voter, address in voters.items():
            right = [at for node, at in taken if node == voter and _is_local(at) >= _is_local(address)]
            is_followed = quorum is not None and voter == quorum.leader_id and broker in follows
            if voter != broker and (voter, address) in refused and right and not is_followed:
                dead.setdefault(broker, {})[voter] = address
    return dead


def addresses_of(lists: Lists, known: Collection[int], dead: DeadAddresses) -> dict[int, str]:
    """Returns the address of each voter, as most brokers have it; those with other voters do not count, nor does what is dead."""
    others = other_voters(lists, known)
    votes: dict[int, Counter[str]] = {}
    for broker, text in sorted(lists.items()):
        for voter, address in voters_in(text).items() if broker not in others or len(others) == len(lists) else ():
            if voter not in dead.get(broker, {}):
                votes.setdefault(voter, Counter())[address] += 1
    return {voter: counter.most_common(1)[0][0] for voter, counter in sorted(votes.items())}


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _is_local(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
