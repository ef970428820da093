"""A consumer's place in its group, as a transaction names it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The coordinator refuses offsets of a member that is no longer one, where they come with its generation (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
