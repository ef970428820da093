"""What the driver does when ``format("ottla")`` is chosen: a look at PySpark's classic readers. Spark Connect has readers of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Choose = Callable[[Any, str], Any]


def acting(choose: Choose, act: Callable[[Any], None]) -> Choose:
    """Returns a reader's method ``format`` that calls ``act`` with the reader, too, where the format is ottla's."""

    @functools.wraps(choose)
    def choose_and_act(reader: Any, source: str) -> Any:
        chosen = choose(reader, source)
        if source.lower() == "ottla":
            act(chosen)
        return chosen

    return choose_and_act
