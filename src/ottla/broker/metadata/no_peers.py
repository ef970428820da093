"""The quorum of one: there is nobody to ask."""

from __future__ import annotations

from collections.abc import Callable

from ottla.consensus.calls import Answer, Request


class NoPeers:
    """A ``replica.Transport`` that is never used: the only voter asks nobody."""

    def send(self, peer: int, request: Request, on_answer: Callable[[Answer | None], None]) -> None:
        raise AssertionError(f"the only voter asks nothing of {peer}")

    def probe(self, peer: int, on_proof: Callable[[bool | None], None]) -> None:
        raise AssertionError(f"the only voter does not doubt {peer}")
