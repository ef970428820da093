"""``--kill``: a broker dies in the middle of the run, and comes back before its end; so do a Python worker and Spark's JVM.

Of the flights that this run sends, a third is acknowledged when a broker that leads some of their partitions gets SIGKILL; at two thirds it
is started again. The sender does not run ahead of that: it has at most half of the flights sent before the kill, and the last sixth only
when the broker is in sync again. So the same happens in a short run and in a long one, whatever the speed. The worker dies before
the broker, at a sixth, and the JVM after it, at five sixths: what happens to Spark is the caller's, whose thread has its session.

All that is said was observed by clients: who leads and who is in sync is what the cluster answers, and the pause ends with the
acknowledgement of a flight that was sent after the kill, to a partition that the dead broker had led.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from ottla.errors import OttlaError
from ottla.spark.demo.place import Brokers
from ottla.spark.demo.sending import FLIGHTS, TOPICS, FlightSender
from ottla.sync import Admin, TopicPartition

POLL_S: Final = 0.01
LATE_S: Final = 120.0
"""After which the cluster has failed the drill."""
SPARK_LATE_S: Final = 300.0
"""The same of Spark, whose start and first batch take many times as long on a busy machine."""

WORKER: Final = "worker"
JVM: Final = "jvm"

Leaders: TypeAlias = dict[TopicPartition, int]


class DrillFailed(OttlaError):
    """The cluster did not come to what it promises."""


class KillDrill(threading.Thread):
    """``events`` are the lines to show; ``error`` is why the thread ended early; ``wanted`` is what of Spark is to be killed now.

    The caller says so with ``on_killed`` when it has been.
    """

    def __init__(self, brokers: Brokers, sender: FlightSender, total: int, *, kills_spark: bool = False) -> None:
        super().__init__(name="kill-drill", daemon=True)
        self._brokers = brokers
        self._sender = sender
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._begin, self._left = sender.sent_before, total - sender.sent_before
        self.error: BaseException | None = None
        self.wanted: str | None = None
        self._kills_spark = kills_spark
        sender.hold_at = self._begin + self._left // (4 if kills_spark else 2)

    def stop(self) -> None:
        """Ends all killing and starting."""
        self._stopping.set()
        if self.ident is not None:
            self.join()

    def say(self, text: str) -> None:
        """Adds the text to the events."""
        self._said.put(text)

    def on_killed(self, text: str | None = None) -> None:
        """Notes that what was wanted has been killed, and runs again."""
        if text is not None:
            self._said.put(text)
        self.wanted = None

    def events(self) -> Iterator[str]:
        """Yields what was said since the last call. The error that ended the drill is raised."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._said.get_nowait()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        try:
            with Admin(self._brokers.bootstrap, client_id="ottla-demo-drill") as admin:
                self._kill_and_return(admin)
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the job raises it
            self.error = error
        finally:
            self._sender.hold_at = None

    def _kill_and_return(self, admin: Admin) -> None:
        sender, begin, left = self._sender, self._begin, self._left
        if self._kills_spark:
            self._kill_of_spark(WORKER, begin + left // 6)
            sender.hold_at = begin + left // 2
        self._wait_until(lambda: sender.sent_count >= begin + left // 3)
        victim, led = _most_loaded(leaders(admin))
        sent_count, killed_at = sender.sent_count, time.monotonic()
        self._brokers.kill(victim)
        sender.watch([key.partition for key in led if key.topic == FLIGHTS])
        sender.hold_at = back_at = begin + 2 * left // 3
        self._said.put(f"kill       broker {victim} got SIGKILL after {sent_count:,} flights; it led {_names(led)}")
        found = self._leaders_but(admin, victim, led)
        self._said.put(f"           now led: {_by_leader(found)}")
        self._wait_until(lambda: sender.acknowledged_at is not None or sender.sent_count >= back_at)
        self._said.put(f"           {_pause(sender.acknowledged_at, killed_at)}")
        self._wait_until(lambda: sender.sent_count >= back_at)
        sender.hold_at = begin + 5 * left // 6
        started_at = time.monotonic()
        self._brokers.restart(victim)
        self._wait_until(lambda: _is_in_sync(admin, victim))
        count = sum(TOPICS.values())
        self._said.put(
            f"return     broker {victim} was started after {back_at:,} flights, and in the ISR of all {count} partitions"
            f" {_ms(time.monotonic() - started_at)} later"
        )
        if self._kills_spark:
            self._kill_of_spark(JVM, begin + 5 * left // 6)

    def _kill_of_spark(self, what: str, sent_count: int) -> None:
        """Asks for a kill when so many flights were sent."""
        sender = self._sender
        self._wait_until(lambda: sender.sent_count >= sent_count)
        if what == JVM:  # the checkpoints have something to come back with
            self._wait_until(lambda: sender.read_count > self._begin, late_s=SPARK_LATE_S)
        self.wanted = what
        self._wait_until(lambda: self.wanted is None, late_s=SPARK_LATE_S)

    def _leaders_but(self, admin: Admin, victim: int, led: list[TopicPartition]) -> Leaders:
        """Returns who leads these partitions, once the victim leads none of them, and each has a leader."""
        found: Leaders = {}

        def have_moved() -> bool:
            found.update(leaders(admin))
            return all(found[key] not in (victim, -1) for key in led)

        self._wait_until(have_moved)
        return {key: found[key] for key in led}

    def _wait_until(self, is_so: Callable[[], bool], *, late_s: float = LATE_S) -> None:
        """Waits as long as the sender moves: a run of all flights may take minutes on a slow machine."""
        deadline, count = time.monotonic() + late_s, self._sender.sent_count
        while not is_so():
            if self._stopping.wait(POLL_S):
                raise _Stopped
            if self._sender.sent_count != count:
                deadline, count = time.monotonic() + late_s, self._sender.sent_count
            if time.monotonic() > deadline:
                raise DrillFailed(f"the cluster has not come back within {late_s:.0f} s of the last progress; see {self._brokers.place}")


class _Stopped(Exception):
    """The job ends."""


def leaders(admin: Admin) -> Leaders:
    """Returns the leaders of all partitions of the job's topics; -1 where there is none."""
    found: Leaders = {}
    for topic in TOPICS:
        for index, partition in admin.describe_topic(topic).partitions.items():
            found[TopicPartition(topic, index)] = partition.leader
    return found


def _most_loaded(found: Leaders) -> tuple[int, list[TopicPartition]]:
    """Returns the broker that leads most partitions of the flights, the first of several, and all partitions that it leads."""
    counts = Counter(leader for key, leader in sorted(found.items()) if key.topic == FLIGHTS)
    [(victim, _)] = counts.most_common(1)
    return victim, sorted(key for key, leader in found.items() if leader == victim)


def _is_in_sync(admin: Admin, broker: int) -> bool:
    return all(broker in partition.in_sync for topic in TOPICS for partition in admin.describe_topic(topic).partitions.values())


def _names(partitions: list[TopicPartition]) -> str:
    return ", ".join(f"{key.topic}-{key.partition}" for key in partitions)


def _by_leader(found: Leaders) -> str:
    by_leader: dict[int, list[TopicPartition]] = {}
    for key, leader in sorted(found.items()):
        by_leader.setdefault(leader, []).append(key)
    return "; ".join(f"{_names(keys)} by broker {leader}" for leader, keys in sorted(by_leader.items()))


def _pause(acknowledged_at: float | None, killed_at: float) -> str:
    if acknowledged_at is None:
        return "no flight of these partitions was left to be sent before its return"
    return f"{_ms(acknowledged_at - killed_at)} from the kill to the next acknowledged flight of these partitions"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
