"""The names of topics that were deleted while this process runs: producers that go on in a later topic of the name are unknown to its log.

librdkafka numbers its batches as if the topic were the earlier one, and gives up for good when it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.metadata.image import TopicImage

NAMES_MAX: Final = 10_000
"""The latest: a cluster that makes topics for a while each has no end of them."""


class DeletedTopics:
    """They are known by ``in``."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}  # the latest last

    def note(self, deleted: Iterable[TopicImage]) -> list[str]:
        """Notes that these topics are gone. Returns their names."""
        names = [topic.name for topic in deleted]
        for name in names:
            self._names.pop(name, None)
            self._names[name] = None
        while len(self._names) > NAMES_MAX:
            del self._names[next(iter(self._names))]
        return names

    def __contains__(self, name: str) -> bool:
        return name in self._names
