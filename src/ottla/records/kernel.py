"""The record kernel: its compiled form where this installation has one, else the plain one.

``plain_kernel`` is the reference; the compiled one is C (``c/``), and equal in all but speed; docs/decisions/0022-record-kernel-in-c.md.
``OTTLA_KERNEL=plain`` chooses the plain one, and ``OTTLA_KERNEL=compiled`` fails where there is no other. One that was compiled for
another reference, or from another source, than those beside it is not used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

COMPILED: Final = "ottla.records.compiled_kernel"
C_SOURCES: Final = ("compiled_kernel.c", "walk.h", "reading.h", "checking.h", "writing.h")
"""In the order in which they are compiled; no wheel has them."""


def _chosen(wanted: str) -> ModuleType:
    if wanted not in ("", "plain", "compiled"):
        raise ImportError(f"OTTLA_KERNEL={wanted} is neither plain nor compiled")
    if wanted != "plain" and importlib.util.find_spec(COMPILED):
        compiled = _loaded()
        if compiled is not None and _is_current(compiled, Path(__file__).parent):
            return compiled
    if wanted == "compiled":
        found = "the plain kernel only, or a compiled one of another source, or for another machine"
        raise ImportError(f"OTTLA_KERNEL=compiled, and this installation has {found}: make kernel builds it")
    return importlib.import_module("ottla.records.plain_kernel")


def _loaded() -> ModuleType | None:
    """Returns the module; None where it cannot be loaded: it is of another machine, or this interpreter takes no such modules."""
    try:
        return importlib.import_module(COMPILED)
    except ImportError:
        return None


def _is_current(compiled: ModuleType, directory: Path) -> bool:
    """True when it was compiled for the reference in the directory, and from the source there, if that is there."""
    if hashlib.sha256((directory / "plain_kernel.py").read_bytes()).hexdigest() != compiled.SOURCE_SHA256:
        return False
    sources = [directory / "c" / name for name in C_SOURCES]
    if not sources[0].exists():
        return True
    return getattr(compiled, "C_SHA256", None) == hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


if TYPE_CHECKING:
    from ottla.records import plain_kernel as _kernel
else:
    _kernel = _chosen(os.environ.get("OTTLA_KERNEL", ""))

FORM: Final = "compiled" if _kernel.__name__ == COMPILED else "plain"

check_records = _kernel.check_records
decode_columns = _kernel.decode_columns
encode_columns = _kernel.encode_columns
encode_record = _kernel.encode_record
