"""Kafka's metadata versions: levels, the releases that brought them, and whether a level changed what metadata records say.

Going down across a level that changed them could lose metadata, and is refused. Source: KIP-778.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.errors import ErrorCode, KafkaError

_RELEASES: Final = {
    "3.3": (7,),
    "3.4": (8,),
    "3.5": (9, 10, 11),
    "3.6": (12, 13, 14),
    "3.7": (15, 16, 17, 18, 19),
    "3.8": (20,),
    "3.9": (21,),
    "4.0": (22, 23, 24, 25),
    "4.1": (26, 27),
    "4.2": (28, 29),
    "4.3": (30,),
    "4.4": (31,),  # not released
}
_FIRST_NUMBERS: Final = {"3.3": 3}  # of the first level's "IV", where it is not 0
_CHANGED: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
LEVELS: Final[Mapping[str, int]] = {
    **{
        f"{release}-IV{number}": level
        for release, levels in _RELEASES.items()
        for number, level in enumerate(levels, _FIRST_NUMBERS.get(release, 0))
    },
    **{release: levels[-1] for release, levels in _RELEASES.items()},
}
"""By the names that Kafka's tools take: "3.9" for the last level of a release, "4.0-IV1" for a single one."""


def level_of(release: str) -> int:
    """Returns the level of a release; what follows its second number is passed over, as Kafka does. INVALID_CONFIG for an unknown one."""
    parts = release.split(".")
    level = LEVELS.get(release if len(parts) <= 2 else ".".join(parts[:2]))
    if level is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"release version {release[:80]!r} is not known; {', '.join(_RELEASES)} are")
    return level


def is_lossy(current: int, wanted: int) -> bool:
    """True when going down from one level to the other passes a level that changed records."""
    return any(wanted < level <= current for level in _CHANGED)
