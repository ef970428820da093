"""Numbers with a unit, as in ``retention.ms=7d`` and ``producer_byte_rate=1MB``: what is sent and stored is the plain number."""

from __future__ import annotations

import re
from typing import Final

_TIMES: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES: Final = {
    f"{prefix}{middle}B": base**power for middle, base in (("", 1000), ("i", 1024)) for power, prefix in enumerate("KMGT", start=1)
}
_NUMBER: Final = re.compile(r"(\d+)([A-Za-z]+)")


def without_unit(key: str, text: str) -> str:
    """Returns the number in the key's own unit where ``text`` has a unit of the key's kind; other text stays as it is.

    Times are for keys that end in ``.ms``, sizes (KB is 1,000 bytes, KiB 1,024) for numbers of bytes.
    """
    found = _NUMBER.fullmatch(text)
    units = _TIMES if key.endswith(".ms") else _SIZES if "byte" in key or key.endswith(".throttled.rate") else {}
    return text if found is None or found[2] not in units else str(int(found[1]) * units[found[2]])
