"""Ids that the coordinator gives to members without one."""

from __future__ import annotations

from ottla.ports import Random


def fresh_id(random: Random) -> str:
    """Returns a random UUID's usual text."""
    text = f"{random.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
