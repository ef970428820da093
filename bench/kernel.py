"""``python -m bench.kernel``: what a record costs in both forms of the record kernel, in one run.

Needs the compiled form (``make kernel``). Batches of 64 KiB; best of many rounds, the forms in turn. What surrounds the kernel is
not in it.
"""

from __future__ import annotations

import importlib
import sys
import time
from types import ModuleType
from typing import Any

from ottla.records import plain_kernel
from ottla.records.kernel import COMPILED

BATCH_BYTES = 65_536
ROUNDS = 100
SIZES = (100, 1000)


def main() -> None:
    forms = {"plain": plain_kernel, "compiled": importlib.import_module(COMPILED)}
    sys.stdout.write(f"{'ns a record, key of 8 bytes':<34}{'plain':>8}{'compiled':>10}{'ratio':>8}\n")
    for size in SIZES:
        rows = range(BATCH_BYTES // size)
        keys: list[bytes | None] = [b"%08d" % number for number in rows]
        values: list[bytes | None] = [bytes([number % 256]) * size for number in rows]
        data = _write_columns(plain_kernel, keys, values)
        for name, action, arguments in (
            ("bytes to columns", _read, (data, len(rows))),
            ("a batch checked", _check, (data, len(rows))),
            ("columns to bytes", _write_columns, (keys, values)),
            ("one record to bytes", _write_records, (keys, values)),
        ):
            plain, compiled = (took / len(rows) for took in _best(action, list(forms.values()), arguments))
            sys.stdout.write(f"{f'{name}, {size:,} B values':<34}{plain:>8,.0f}{compiled:>10,.0f}{plain / compiled:>8.1f}\n")


def _best(action: Any, forms: list[ModuleType], arguments: tuple[Any, ...]) -> list[float]:
    """Nanoseconds of each form."""
    best = [float("inf")] * len(forms)
    for _ in range(ROUNDS):
        for index, form in enumerate(forms):
            start = time.perf_counter_ns()
            action(form, *arguments)
            best[index] = min(best[index], time.perf_counter_ns() - start)
    return best


def _read(form: ModuleType, data: bytes, count: int) -> None:
    columns: dict[str, list[Any]] = {name: [] for name in ("offsets", "times", "keys", "values")}
    numbers = {"base_offset": 0, "base_timestamp": 1_700_000_000_000, "last_delta": count, "delta_min": 0, "delta_max": count}
    form.decode_columns(data, 0, count, **numbers, **columns, headers=None)


def _check(form: ModuleType, data: bytes, count: int) -> None:
    assert form.check_records(data, 0, count, 0)[0] == len(data), "the batch is good"


def _write_columns(form: ModuleType, keys: list[bytes | None], values: list[bytes | None]) -> bytes:
    written: bytes = form.encode_columns(keys, values, None, start=0, end=len(keys), time_delta=0, offset_delta=0, size_max=1 << 30)[0]
    return written


def _write_records(form: ModuleType, keys: list[bytes | None], values: list[bytes | None]) -> None:
    for number in range(len(keys)):
        form.encode_record(0, number, keys[number], values[number], ())


if __name__ == "__main__":
    main()
