"""Brokers that were fenced because their process seemed to have died, and then turned out to live.

After the third such mistake within ten minutes this broker's connections are no longer taken as evidence: something between it and the
controller ends them. It is then fenced by its session timeout alone, as all brokers of Apache Kafka are.
"""

from __future__ import annotations

from collections import deque
from typing import Final

ALARMS_MAX: Final = 3
WITHIN_MS: Final = 10 * 60 * 1000


class FalseAlarms:
    """The false alarms that one active controller has seen. Brokers are named by id, whatever their epochs."""

    def __init__(self) -> None:
        self._suspected: dict[int, int] = {}
        self._alarms: dict[int, deque[int]] = {}
        self.count = 0
        self.untrusted: frozenset[int] = frozenset()

    def on_fenced(self, broker_id: int, epoch: int) -> None:
        """Notes that the process that had this epoch was taken to be dead."""
        self._suspected[broker_id] = epoch

    def on_unfenced(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """True when it was not, and so its connections prove nothing from now on."""
        if self._suspected.pop(broker_id, None) != epoch:
            return False
        self.count += 1
        alarms = self._alarms.setdefault(broker_id, deque(maxlen=ALARMS_MAX))
        alarms.append(now_ms)
        if len(alarms) < ALARMS_MAX or now_ms - alarms[0] > WITHIN_MS or broker_id in self.untrusted:
            return False
        self.untrusted |= {broker_id}
        return True
