"""The way to the voters of the metadata log: their addresses are in the configuration, what they are asked is Kafka's messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from ottla.broker.liveness.probe import Probe, Proof
from ottla.broker.part import Part
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.connection import Older
from ottla.broker.peers.peers import Address, Peers
from ottla.broker.tasks import eager
from ottla.consensus.calls import Answer, Request, Vote, VoteAnswer
from ottla.consensus.wire_form import from_answer_message, to_answer_message, to_message
from ottla.errors import DecodeError
from ottla.loggers import get_logger
from ottla.ports import World
from ottla.types import NO_LEADER
from ottla.wire.schema import Response

log = get_logger(__name__)

PRE_VOTES_SINCE: Final = 2
"""The version of Vote."""


class Voters(Part):
    """The other voters, by their addresses."""

    def __init__(self, world: World, addresses: Mapping[int, Address], peers: Peers, *, name: CallerName, is_probing: bool) -> None:
        self._world = world
        self._name = name
        self._is_probing = is_probing
        self.addresses = addresses
        self._peers = peers
        self._answered: dict[int, bool] = {}  # whether the last request was
        self._leaders: dict[int, int] = {}  # whom each that answered has for the leader

    def address_of(self, voter: int) -> Address | None:
        """Returns where the voter's controller listens; None for a node that is no voter."""
        return self.addresses.get(voter)

    async def stop(self) -> None:
        self._peers.close()

    def send(self, peer: int, request: Request, on_answer: Callable[[Answer | None], None]) -> None:
        """Sends the request; the answer comes by callback, None when it never will."""

        def answered(response: Response | None) -> None:
            try:
                answer = None if response is None else from_answer_message(response)
            except DecodeError as error:
                log.warning("voter_answer_not_understood", voter=peer, reason=error.message)
                answer = None
            self._answered[peer] = answer is not None
            if answer is not None:
                self._leaders[peer] = answer.leader_id
            on_answer(answer)

        self._peers.send(self.addresses[peer], to_message(request), answered, _older(request))

    def said(self, voter: int) -> str:
        """Returns what the voter's address does, as the end of a sentence about it; empty as long as it was not asked."""
        trouble = self._peers.trouble(self.addresses[voter])
        if trouble is not None or voter not in self._answered:
            return trouble or ""
        return "answers" if self._answered[voter] else "takes connections and does not answer"

    def followers_of_others(self) -> dict[int, list[int]]:
        """Returns the voters that answered and follow a controller that is none of these voters, by that controller."""
        found: dict[int, list[int]] = {}
        for voter, leader in sorted(self._leaders.items()):
            if leader != NO_LEADER and leader not in self.addresses and self._answered[voter]:
                found.setdefault(leader, []).append(voter)
        return found

    def probe(self, peer: int, on_proof: Callable[[bool | None], None]) -> None:
        """Finds out whether the voter's process lives; with ``ottla.failure.detection=timeouts`` it never does."""
        if self._is_probing:
            eager.run(self._probe(peer), lambda proof, error: on_proof(_said(proof, error)))
        else:
            on_proof(None)

    async def _probe(self, peer: int) -> bool | None:
        await asyncio.sleep(0)  # callbacks never come before the caller has returned
        probe = Probe(self._world, self.addresses[peer], self._name)
        proof = await probe.run()
        probe.close()
        return None if proof is Proof.NONE else proof is Proof.ALIVE


def _older(request: Request) -> Older | None:
    """Returns an older form: a voter without pre-votes (Kafka before 4.0) would take one for a vote; it counts as willing (KIP-996)."""
    if not isinstance(request, Vote) or not request.is_pre:
        return None
    willing = VoteAnswer(epoch=request.epoch, is_granted=True)
    return Older(PRE_VOTES_SINCE, to_answer_message(willing))


def _said(proof: bool | None, error: BaseException | None) -> bool | None:
    if error is not None and not isinstance(error, asyncio.CancelledError):
        log.error("voter_not_probed", exc_info=error)
    return proof
