"""A controller's knowledge of the znodes: what is there beside the image, and what records remove from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.metadata.acls import Pattern
from ottla.metadata.image import TopicImage


@dataclass(slots=True)
class Known:
    """A controller's knowledge of the znodes beside the image: the ``versions`` of existing ones, by path.

    ``kept`` are values of a configuration that are not ours, and stay as they are; ``kept_acls`` the same of ACLs.
    """

    versions: dict[str, int] = field(default_factory=dict)
    kept: dict[str, dict[str, str]] = field(default_factory=dict)
    kept_acls: dict[str, Sequence[Any]] = field(default_factory=dict)
    change_counts: dict[str, int] = field(default_factory=dict)
    """How often this controller has decided on a configuration, an assignment, the ACLs of a resource, a token."""
    problems: list[str] = field(default_factory=list)
    """What could not be understood, and has no effect; for the log."""

    def note(self, path: str, version: int | None) -> None:
        """Records that the znode has that version, or does not exist."""
        if version is None:
            self.versions.pop(path, None)
        else:
            self.versions[path] = version

    def count(self, path: str) -> None:
        """Counts a decision of this controller about the znode."""
        self.change_counts[path] = self.change_counts.get(path, 0) + 1


class Removed(NamedTuple):
    """The subjects that records remove from the image."""

    topics: Sequence[TopicImage] = ()
    patterns: Sequence[Pattern] = ()
