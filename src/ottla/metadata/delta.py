"""What differs between two images.

Images share what did not change, so identity tells what did; it is found once, and handed to everybody who follows the metadata.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.metadata.image import ClusterImage, TopicImage


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """From ``old`` to ``new``."""

    old: ClusterImage
    new: ClusterImage
    changed_topics: tuple[TopicImage, ...] = field(init=False)
    """Those of ``new`` that are new or not as they were, by name."""
    deleted_topics: tuple[TopicImage, ...] = field(init=False)
    """Those of ``old`` that are gone, by name; a topic of the same name that was made later is among the changed ones."""

    def __post_init__(self) -> None:
        old, new = self.old.topics, self.new.topics
        changed: list[TopicImage] = []
        deleted: list[TopicImage] = []
        if old is not new:
            changed = [topic for name, topic in new.items() if old.get(name) is not topic]
            deleted = [topic for name, topic in old.items() if (left := new.get(name)) is None or left.topic_id != topic.topic_id]
        object.__setattr__(self, "changed_topics", tuple(sorted(changed, key=_name)))
        object.__setattr__(self, "deleted_topics", tuple(sorted(deleted, key=_name)))


def _name(topic: TopicImage) -> str:
    return topic.name
