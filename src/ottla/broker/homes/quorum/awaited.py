"""What a node of a quorum waits for, in words: which controllers cannot be reached, and which do not follow this one."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.metadata.voters import Voters
from ottla.broker.peers.peers import Address
from ottla.consensus.quorum import Quorum
from ottla.types import NO_LEADER


def election(voters: Voters, node_id: int, last_leader: int = NO_LEADER) -> str:
    """Returns the wait for a leader, with what each controller's address does.

    ``last_leader`` was known once: where a majority answers and only its address does not, the address is what is wrong.
    """
    for leader, followers in voters.followers_of_others().items():
        they = f"{', '.join(map(str, followers))} follow{'s' * (len(followers) == 1)} it"
        fault = f"controller.quorum.voters of this node lacks {leader}: write the list of the other nodes in this node's file"
        return f"controller {leader} to be among its voters: {they}, and {fault}"
    said = {voter: "answers" if voter == node_id else voters.said(voter) for voter in voters.addresses}
    if said.get(last_leader, "answers") not in ("", "answers") and sum(text == "answers" for text in said.values()) > len(said) // 2:
        there = f"{_text(voters.addresses[last_leader])} {said[last_leader]}"
        return f"controller {last_leader}, which was active, and {there}: compare its address in controller.quorum.voters on all nodes"
    known = "; ".join(_one(voters, voter, node_id) for voter in sorted(voters.addresses))
    return f"a majority of the controllers to elect a leader ({known}); that needs {len(voters.addresses) // 2 + 1} of them"


def followers(quorum: Quorum, voters: Mapping[int, Address], node_id: int) -> str | None:
    """Returns the wait of a leader that a majority has not fetched from yet: nothing that it decides is kept; None for any other node."""
    if quorum.leader_id != node_id or quorum.is_established:
        return None
    missing = [voter for voter, progress in sorted(quorum.progress()[0].items()) if progress.leader_end_offset < 0]
    if len(voters) - len(missing) > len(voters) // 2:
        return None
    named = ", ".join(f"{voter}@{_text(voters[voter])}" for voter in missing)
    own = f"{node_id}@{_text(voters[node_id])}"
    ask = f"{named} has not fetched from it; has each {own} in its voters?"
    return f"a majority of the controllers to follow this node, which leads them: {ask}"


def _one(voters: Voters, voter: int, node_id: int) -> str:
    said = "is this node" if voter == node_id else voters.said(voter)
    return f"{voter}@{_text(voters.addresses[voter])}{f' {said}' if said else ''}"


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
