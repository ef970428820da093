"""The record kernel: its compiled form where this installation has one, else the plain one.

Both are made from ``plain_kernel`` and are equal in all but speed; docs/decisions/0012-record-kernel.md.
``OTTLA_KERNEL=plain`` chooses the plain one, and ``OTTLA_KERNEL=compiled`` fails where there is no other. One that was compiled from
an older source than the one beside it is not used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

COMPILED: Final = "ottla.records.compiled_kernel"


def _chosen(wanted: str) -> ModuleType:
    if wanted not in ("", "plain", "compiled"):
        raise ImportError(f"OTTLA_KERNEL={wanted} is neither plain nor compiled")
    if wanted != "plain" and importlib.util.find_spec(COMPILED):
        compiled = importlib.import_module(COMPILED)
        source = Path(__file__).with_name("plain_kernel.py").read_bytes()
        if hashlib.sha256(source).hexdigest() == compiled.SOURCE_SHA256:
            return compiled
    if wanted == "compiled":
        found = "the plain kernel only, or a compiled one of another source"
        raise ImportError(f"OTTLA_KERNEL=compiled, and this installation has {found}: make kernel builds it")
    return importlib.import_module("ottla.records.plain_kernel")


if TYPE_CHECKING:
    from ottla.records import plain_kernel as _kernel
else:
    _kernel = _chosen(os.environ.get("OTTLA_KERNEL", ""))

FORM: Final = "compiled" if _kernel.__name__ == COMPILED else "plain"

check_records = _kernel.check_records
decode_columns = _kernel.decode_columns
encode_columns = _kernel.encode_columns
encode_record = _kernel.encode_record
