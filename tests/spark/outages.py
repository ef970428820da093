"""A broker that is away for some time, at named phases of micro-batches: a proxy before it sees what passes, and takes it away in time.

A broker that is killed loses the request or the answer at which it goes, and refuses connections until it is back. One that hangs (SIGSTOP)
takes connections and requests, and answers none of them until then.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.proxy import Exchange, Proxy
from tests.spark.doomed_queries import SOURCE, TOTALS, start
from tests.spark.kills import PARTITION_COUNT, check_totals, fill

from ottla.messages.api_keys import ApiKey
from ottla.sync import Admin, NewTopic

FETCH_BYTES: Final = (52_428_800).to_bytes(4, "big")
"""What a task asks of a leader at most; requests of the driver for sizes and for news ask for less."""


class Phase(NamedTuple):
    """The broker goes when it is to get such a request, or when its answer is to come back."""

    name: str
    api_key: ApiKey
    number: int = 1  # of these requests, since a batch has been written after the last outage
    is_answer: bool = False
    content: bytes = b""  # which the request has


PHASES: Final = (
    Phase("planning", ApiKey.LIST_OFFSETS),
    Phase("reading", ApiKey.FETCH, content=FETCH_BYTES),
    Phase("read a part", ApiKey.FETCH, number=3, content=FETCH_BYTES),
    Phase("producing", ApiKey.PRODUCE),
    Phase("produced half", ApiKey.PRODUCE, number=2),
    Phase("produced half, not answered", ApiKey.PRODUCE, number=2, is_answer=True),
    Phase("before the offsets", ApiKey.TXN_OFFSET_COMMIT),
    Phase("before the commit", ApiKey.END_TXN),
    Phase("committed, not answered", ApiKey.END_TXN, is_answer=True),
)


ROWS_PER_BATCH: Final = 40


def check_outages(
    spark: Any,
    directory: Path,
    phases: Sequence[Phase],
    seconds: float,
    *,
    hangs: bool = False,
    checkpoint: str = "topic",
    **sink_options: str,
) -> None:
    """A query goes on by itself over a broker that is away at each of the phases, one after the other, and writes what a batch computes."""
    with Outages(directory, phases, seconds, hangs=hangs) as outages:
        with Admin(outages.bootstrap) as admin:
            topics = [NewTopic(name, PARTITION_COUNT, 1, {"retention.ms": "-1"}) for name in (SOURCE, TOTALS)]
            assert set(admin.create_topics(topics).values()) == {None}
        fill(outages.bootstrap, 0, ROWS_PER_BATCH * 3 * len(phases))
        outages.begin()
        small = {"kafka.batch.size": "300"}  # a batch is several requests
        [query] = start(spark, outages.bootstrap, directory, ["totals"], ROWS_PER_BATCH, checkpoint, **small, **sink_options)
        query.awaitTermination()  # raises where it has failed
        outages.end()
        assert outages.gone == [phase.name for phase in phases]
        check_totals(outages.bootstrap, directory / "totals")


class Outages(Proxy):
    """``with Outages(directory, phases, seconds) as outages:`` a broker that is away ``seconds`` long at each of the phases, in turn.

    ``begin`` lets the first one come, and each other one comes when a batch has been written since.
    """

    def __init__(self, directory: Path, phases: Sequence[Phase], seconds: float, *, hangs: bool = False) -> None:
        super().__init__()
        self._directory = directory
        self._phases = list(phases)
        self._seconds = seconds
        self._hangs = hangs
        self._seen = 0
        self._is_armed = self._is_back = False
        self._problem: BaseException | None = None
        self._returns: list[threading.Thread] = []
        self.gone: list[str] = []  # the phases at which it went

    def begin(self) -> None:
        self._is_armed = True

    def end(self) -> None:
        """The broker has come back from each outage."""
        for thread in self._returns:
            thread.join()
        if self._problem is not None:
            raise self._problem

    def note(self, exchange: Exchange | None) -> None:
        """Nothing is kept."""

    def passes(self, exchange: Exchange) -> bool:
        if self._is_back and exchange.api_key == ApiKey.END_TXN and exchange.response is not None:
            self._is_armed, self._is_back = True, False  # a batch has been written since
            return True
        if not self._is_armed or not self._phases:
            return True
        phase = self._phases[0]
        if exchange.api_key != phase.api_key or phase.content not in exchange.request:
            return True
        if (exchange.response is not None) != phase.is_answer:
            return True
        self._seen += 1
        if self._seen < phase.number:
            return True
        self._is_armed, self._seen = False, 0
        self.gone.append(self._phases.pop(0).name)
        if self._hangs:
            self.broker.send_signal(signal.SIGSTOP)
        else:
            self.broker.kill()
        back = threading.Timer(self._seconds, self._come_back)
        self._returns.append(back)
        back.start()
        return self._hangs

    def _come_back(self) -> None:
        try:
            if self._hangs:
                self.broker.send_signal(signal.SIGCONT)
            else:
                self.broker.start()
            self._is_back = True
        except BaseException as problem:  # noqa: BLE001 - ``end`` raises it
            self._problem = problem

    def __enter__(self) -> Self:
        super().__enter__()
        self.broker = BrokerProcess(self._directory, advertised_listeners=f"PLAINTEXT://{self.bootstrap}").__enter__()
        self.target_port = self.broker.port
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for back in self._returns:
            back.join()
        self.broker.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)
