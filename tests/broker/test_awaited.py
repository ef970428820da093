"""What a node says that it waits for, where no controller is found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from ottla.broker.homes.quorum.awaited import election
from ottla.broker.metadata.voters import Voters


def voters(**said: str) -> Voters:
    addresses = {1: ("a", 9999), 2: ("b", 1), 3: ("c", 1)}
    return cast(Voters, SimpleNamespace(addresses=addresses, said=lambda voter: said.get(f"of_{voter}", "answers")))


def test_a_wrong_address_of_the_active_controller_is_what_is_wrong() -> None:
    """It said that a majority is needed, of which two answered."""
    text = election(voters(of_1="refuses"), 4, last_leader=1)
    assert text == "controller 1, which was active, and a:9999 refuses: compare its address in controller.quorum.voters on all nodes"


def test_without_a_majority_or_a_leader_the_controllers_are_counted() -> None:
    counted = "a majority of the controllers to elect a leader (1@a:9999 refuses; 2@b:1"
    assert election(voters(of_1="refuses", of_2="refuses"), 4, last_leader=1).startswith(f"{counted} refuses; 3@c:1 answers); that needs 2")
    assert election(voters(of_1="refuses"), 4).startswith(f"{counted} answers; ")
    assert election(voters(of_1="refuses"), 4, last_leader=2).startswith(f"{counted} answers; ")
