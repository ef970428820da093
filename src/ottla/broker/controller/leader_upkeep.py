"""What the active controller looks for from time to time: leaderships that are not where they should be, partitions without a leader.

Candidates are looked for in the committed image, in slices; each is judged again when it is decided on. One round decides on a bounded
number of them, and others follow when it is committed. Source: KIP-460, KIP-966 (unclean elections).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.liveness.evidence import Evidence
from ottla.broker.part import Part
from ottla.broker.tasks import eager
from ottla.broker.tasks.single_flight import SingleFlight
from ottla.broker.tasks.slices import Slices
from ottla.config import BrokerConfig
from ottla.controller.arrivals import YOUNG_MS
from ottla.controller.decided import Recorded
from ottla.controller.elections import elect_uncleanly, give_back, is_imbalanced
from ottla.controller.topic_rules import UNCLEAN, may_lead, partitions_of
from ottla.errors import KafkaError
from ottla.loggers import get_logger
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import ClusterImage
from ottla.ports import TimerHandle, World
from ottla.types import NO_LEADER

log = get_logger(__name__)

ELECTIONS_MAX: Final = 1000
"""Of one round."""

Decision = Callable[[ClusterImage], Recorded]


class LeaderUpkeep(Part):
    """The care of leaderships, at work while this node's controller is active.

    A lone broker's partitions wait for its own disks: it elects no leader uncleanly.
    """

    def __init__(
        self, world: World, config: BrokerConfig, controller: ActiveController, evidence: Evidence, *, elects_uncleanly: bool
    ) -> None:
        self._world = world
        self._controller = controller
        self._evidence = evidence
        self._elects_uncleanly = elects_uncleanly
        self._balance_ms = config["leader.imbalance.check.interval.seconds"] * 1000
        self._is_balancing = config["auto.leader.rebalance.enable"]
        self._balance = SingleFlight(self._balance_once)
        self._unclean_ms = config["unclean.leader.election.interval.ms"]
        self._may_elect_uncleanly = False
        self._elect_uncleanly = SingleFlight(self._elect_uncleanly_once)
        self._timers: dict[str, TimerHandle] = {}

    def on_active(self, epoch: int) -> None:
        self._may_elect_uncleanly = self._elects_uncleanly
        if self._is_balancing:
            self._again("balance", self._balance_ms, self._balance)
        if self._may_elect_uncleanly:
            self._again("unclean", self._unclean_ms, self._elect_uncleanly)

    async def on_image(self, delta: ImageDelta) -> None:
        """Elects uncleanly where a changed value allows it: partitions that wait for such an election need not wait longer."""
        old, new = delta.old.configs, delta.new.configs
        if old is not new and self._may_elect_uncleanly and any(_allows(new, key) and not _allows(old, key) for key in new):
            self._run(self._elect_uncleanly)

    async def stop(self) -> None:
        self.on_inactive()

    def on_inactive(self) -> None:
        self._may_elect_uncleanly = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _again(self, name: str, interval_ms: int, work: SingleFlight) -> None:
        def due() -> None:
            self._again(name, interval_ms, work)
            if not work.is_running:  # while nothing is committed, one round waits for that, and no others behind it
                self._run(work)

        self._timers[name] = self._world.timers.call_later_ms(interval_ms, due)

    def _run(self, work: SingleFlight) -> None:
        eager.run(work(), _ended)

    async def _balance_once(self) -> None:
        """Lets preferred replicas that can lead do so, once they have been up for as long as clients may back off from them."""

        def decision(topic: str, index: int) -> Decision:
            return lambda image: give_back(image, topic, index, rules=self._controller.rules(image), suspected=self._evidence.suspected)

        while self._controller.is_active:
            image, suspected, slices = self._controller.image, self._evidence.suspected, Slices(self._world.clock)
            found: list[Decision] = []
            young = self._controller.young
            has_young = False
            async for topic, _, index, partition in slices.over(partitions_of(image)):
                if not is_imbalanced(image, partition, suspected):
                    continue
                if partition.replicas[0] in young:
                    has_young = True
                else:
                    found.append(decision(topic, index))
                    if len(found) == ELECTIONS_MAX:
                        break
            count = await self._decide(found)
            if count:
                log.info("leaders_balanced", partitions=count)
            if count < ELECTIONS_MAX:
                if has_young and "young" not in self._timers:
                    self._timers["young"] = self._world.timers.call_later_ms(YOUNG_MS, self._balance_again)
                return

    def _balance_again(self) -> None:
        """Balances again: brokers that were young no longer are."""
        self._timers.pop("young", None)
        if not self._balance.is_running:
            self._run(self._balance)

    async def _elect_uncleanly_once(self) -> None:
        """Gives partitions without a leader one where that is allowed, whatever is lost."""

        def decision(topic: str, index: int) -> Decision:
            return lambda image: elect_uncleanly(
                image, topic, index, rules=self._controller.rules(image), suspected=self._evidence.suspected
            )

        while self._controller.is_active:
            image, slices, allowed = self._controller.image, Slices(self._world.clock), dict[str, bool]()
            rules = self._controller.rules(image)
            found: list[Decision] = []
            async for topic, _, index, partition in slices.over(partitions_of(image)):
                if partition.leader != NO_LEADER or not any(map(may_lead(image, partition), partition.replicas)):
                    continue
                if topic not in allowed:
                    allowed[topic] = rules.may_be_unclean(topic)
                if allowed[topic]:
                    found.append(decision(topic, index))
                if len(found) == ELECTIONS_MAX:
                    break
            if await self._decide(found) < ELECTIONS_MAX:
                return

    async def _decide(self, decisions: Iterable[Decision]) -> int:
        """Returns how many of the decisions had something to record."""
        results: list[Any] = await self._controller.decide(decisions, is_followed=False)
        return sum(not isinstance(result, KafkaError) and bool(result.records) for result in results)


def _allows(configs: Mapping[tuple[int, str], Mapping[str, str]], key: tuple[int, str]) -> bool:
    return configs.get(key, {}).get(UNCLEAN) == "true"


def _ended(_: None, error: BaseException | None) -> None:
    if isinstance(error, KafkaError):  # another controller goes on
        log.info("leaders_not_looked_after", reason=error.message)
    elif error is not None and not isinstance(error, asyncio.CancelledError):
        log.error("leaders_not_looked_after", exc_info=error)
