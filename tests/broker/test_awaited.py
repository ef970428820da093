"""What a node says that it waits for, where no controller is found."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from ottla.broker.homes.quorum.awaited import election
from ottla.broker.metadata.voters import Voters
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.peers import Peers
from ottla.consensus.calls import Vote, VoteAnswer
from ottla.consensus.wire_form import to_answer_message
from ottla.ports import World
from ottla.wire.schema import Response


def voters(others: dict[int, list[int]] | None = None, **said: str) -> Voters:
    addresses = {1: ("a", 9999), 2: ("b", 1), 3: ("c", 1)}
    return cast(
        Voters,
        SimpleNamespace(
            addresses=addresses,
            said=lambda voter: said.get(f"of_{voter}", "answers"),
            followers_of_others=lambda: others or {},
        ),
    )


def test_a_wrong_address_of_the_active_controller_is_what_is_wrong() -> None:
    """It said that a majority is needed, of which two answered."""
    text = election(voters(of_1="refuses"), 4, last_leader=1)
    assert text == "controller 1, which was active, and a:9999 refuses: compare its address in controller.quorum.voters on all nodes"


def test_without_a_majority_or_a_leader_the_controllers_are_counted() -> None:
    counted = "a majority of the controllers to elect a leader (1@a:9999 refuses; 2@b:1"
    assert election(voters(of_1="refuses", of_2="refuses"), 4, last_leader=1).startswith(f"{counted} refuses; 3@c:1 answers); that needs 2")
    assert election(voters(of_1="refuses"), 4).startswith(f"{counted} answers; ")
    assert election(voters(of_1="refuses"), 4, last_leader=2).startswith(f"{counted} answers; ")


def test_a_list_that_lacks_the_active_controller_is_what_is_wrong() -> None:
    """Controller 1 answered, and two were said to be needed: it follows one that this node's list lacks."""
    text = election(voters({5: [1, 2]}), 3)
    assert text == (
        "controller 5 to be among its voters: 1, 2 follow it, and controller.quorum.voters of this node lacks 5: "
        "write the list of the other nodes in this node's file"
    )
    assert "1 follows it" in election(voters({5: [1]}), 3)


def test_voters_are_known_by_whom_they_follow() -> None:
    class Answering:
        """Peers of which each follows controller 2 at first, and then does not answer."""

        leader: int | None = 2

        def send(self, address: object, message: object, on_answer: Callable[[Response | None], None], older: object) -> None:
            on_answer(None if self.leader is None else to_answer_message(VoteAnswer(epoch=5, leader_id=self.leader)))

    peers = Answering()
    found = Voters(cast(World, None), {1: ("a", 1), 3: ("c", 1)}, cast(Peers, peers), name=cast(CallerName, None), is_probing=False)
    vote = Vote(epoch=5, candidate_id=3, last_epoch=4, end_offset=9, voter_id=1)
    for leader, expected in ((2, {2: [1]}), (3, {}), (-1, {}), (2, {2: [1]}), (None, {})):
        peers.leader = leader
        found.send(1, vote, lambda _: None)
        assert found.followers_of_others() == expected, leader
