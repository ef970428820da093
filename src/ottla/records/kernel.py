"""The record kernel: its compiled form where this installation has one, else the plain one.

Both are made from ``plain_kernel`` and are equal in all but speed; why there are two stands in docs/decisions/0012-record-kernel.md.
``OTTLA_KERNEL=plain`` chooses the plain one, and ``OTTLA_KERNEL=compiled`` fails where there is no other.
"""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType
from typing import TYPE_CHECKING, Final

COMPILED: Final = "ottla.records.compiled_kernel"


def _chosen(wanted: str) -> ModuleType:
    if wanted not in ("", "plain", "compiled"):
        raise ImportError(f"OTTLA_KERNEL={wanted} is neither plain nor compiled")
    if wanted != "plain" and importlib.util.find_spec(COMPILED):
        return importlib.import_module(COMPILED)
    if wanted == "compiled":
        raise ImportError("OTTLA_KERNEL=compiled, and this installation has the plain kernel only: make kernel builds the other one")
    return importlib.import_module("ottla.records.plain_kernel")


if TYPE_CHECKING:
    from ottla.records import plain_kernel as _kernel
else:
    _kernel = _chosen(os.environ.get("OTTLA_KERNEL", ""))

FORM: Final = "compiled" if _kernel.__name__ == COMPILED else "plain"

decode_columns = _kernel.decode_columns
encode_columns = _kernel.encode_columns
encode_record = _kernel.encode_record
