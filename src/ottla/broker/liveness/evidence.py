"""What a node sees of the other brokers' processes by itself, and who judges by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ottla.broker.part import Part
from ottla.metadata.image import BrokerImage


class Judge(Protocol):
    """The judge that concludes from signs of other brokers' processes that one has died."""

    def is_heard(self, broker_id: int, epoch: int) -> bool:
        """True when the broker of that epoch is known to live by other means."""
        ...

    def on_dead(self, broker_id: int, epoch: int) -> None:
        """Notes that the process that has registered as the broker with that epoch has ended."""
        ...


class Evidence(Part):
    """This node's own evidence of the other brokers' processes; none where it watches none and judges by timeouts alone."""

    def __init__(self) -> None:
        self._judge: Judge | None = None

    def report_to(self, judge: Judge) -> None:
        """Reports to that judge, who draws the conclusions."""
        self._judge = judge

    def is_heard(self, broker_id: int, epoch: int) -> bool:
        """Asks the judge; False without one."""
        return self._judge is not None and self._judge.is_heard(broker_id, epoch)

    def on_dead(self, broker_id: int, epoch: int) -> None:
        """Reports to the judge."""
        if self._judge is not None:
            self._judge.on_dead(broker_id, epoch)

    def check(self, brokers: Iterable[int] | None = None) -> None:
        """Looks at these brokers, or at all, now."""

    def hears(self, broker_id: int) -> bool:
        """True when a connection is open that the broker has made, or it has yet to make its first one."""
        return False

    def is_broken(self, broker_id: int, epoch: int) -> bool | None:
        """Returns whether the connection to the process has ended; None when there never was one."""
        return None

    def ask_address(self, broker: BrokerImage) -> None:
        """Asks who listens where the broker is registered."""

    def listens_for(self, broker: BrokerImage) -> bytes | None:
        """Returns the incarnation that was found there; None while none was."""
        return None

    @property
    def suspected(self) -> frozenset[int]:
        """Those whose connections have ended, without more proof."""
        return frozenset()

    def distrust(self, brokers: frozenset[int]) -> None:
        """Distrusts these: what is seen of them proves nothing."""
