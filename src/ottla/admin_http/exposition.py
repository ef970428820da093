"""Prometheus' text format 0.0.4, written by hand: at thousands of partitions a general library is an order slower.

A page is a list of families; each has a name, a type, a help text and samples. Source: Prometheus' "Exposition formats".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.broker.tasks.slices import Slices

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Number = int | float


class Sample(NamedTuple):
    """``suffix`` follows the family's name: _bucket, _sum, _count, or nothing."""

    value: Number
    labels: Labels = ()
    suffix: str = ""


class Family(NamedTuple):
    name: str
    type: str
    text: str
    samples: list[Sample]
    labels: tuple[str, ...] = ()
    """The labels of its samples, where there may be none yet: the reference lists them."""


def gauge(name: str, text: str, value: Number) -> Family:
    return Family(name, "gauge", text, [Sample(value)])


def counter(name: str, text: str, value: Number) -> Family:
    return Family(name, "counter", text, [Sample(value)])


def by_label(name: str, type: str, text: str, label: str, values: Mapping[str, Number]) -> Family:
    return Family(name, type, text, [Sample(value, ((label, key),)) for key, value in values.items()], (label,))


async def render(families: Iterable[Family], slices: Slices) -> str:
    """Returns the page, after pauses where there are very many samples."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {_escaped(family.text, quotes=False)}")
        lines.append(f"# TYPE {family.name} {family.type}")
        async for value, labels, suffix in slices.over(family.samples):
            shown = ",".join([f'{name}="{_escaped(text)}"' for name, text in labels])
            lines.append(f"{family.name}{suffix}{{{shown}}} {value!r}" if shown else f"{family.name}{suffix} {value!r}")
    lines.append("")
    return "\n".join(lines)


def _escaped(text: str, *, quotes: bool = True) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped
