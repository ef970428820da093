"""What differs between two images.

Images share what did not change, so identity shows what did; it is computed once, for all that follow the metadata.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.metadata.image import ClusterImage, TopicImage


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """The difference between the images ``old`` and ``new``."""

    old: ClusterImage
    new: ClusterImage
    changed_topics: tuple[TopicImage, ...] = field(init=False)
    """The topics of ``new`` that are new or have changed, by name."""
    deleted_topics: tuple[TopicImage, ...] = field(init=False)
    """The topics of ``old`` that are gone, by name; a topic of the same name that was made later is among the changed ones."""

    def __post_init__(self) -> None:
        old, new = self.old.topics, self.new.topics
        changed: list[TopicImage] = []
        deleted: list[TopicImage] = []
        if old is not new:
            changed = [topic for name, topic in new.items() if old.get(name) is not topic]
        if self.old.topic_names is not self.new.topic_names:
            deleted = [topic for name, topic in old.items() if (left := new.get(name)) is None or left.topic_id != topic.topic_id]
        object.__setattr__(self, "changed_topics", tuple(sorted(changed, key=_name)))
        object.__setattr__(self, "deleted_topics", tuple(sorted(deleted, key=_name)))

    def changes_at(self, broker_id: int) -> list[tuple[TopicImage, list[int]]]:
        """Returns, by topic, the partitions that are new or have changed, among those that the broker hosts or hosted.

        Both in order; topics without any are left out. Partitions of other brokers are not looked at, and neither are those that the topic
        no longer has: a tool has taken them out of its znode, and the replicas stay as they are until the broker starts again.
        """
        found: list[tuple[TopicImage, list[int]]] = []
        before, after = self.old.index.of_broker(broker_id), self.new.index.of_broker(broker_id)
        for topic in self.changed_topics:
            hosted, was_hosted = after.get(topic.name, ()), before.get(topic.name, ())
            if not hosted and not was_hosted:
                continue
            old = self.old.topics.get(topic.name)
            known = old.partitions if old is not None and old.topic_id == topic.topic_id else {}
            partitions = topic.partitions
            numbers = hosted if hosted is was_hosted else {*hosted, *(number for number in was_hosted if number in known)}
            changed = [number for number in numbers if number in partitions and known.get(number) is not partitions[number]]
            if changed:
                found.append((topic, sorted(changed)))
        return found


def _name(topic: TopicImage) -> str:
    return topic.name
