"""Random messages of every declared class and version, made from the declarations themselves."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Hashable, Iterator
from functools import cache
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

import ottla.messages
from ottla.wire.schema import DECLARATIONS, FIELDS, Field, Message

for _module in pkgutil.iter_modules(ottla.messages.__path__):
    importlib.import_module(f"ottla.messages.{_module.name}")

CLASSES: list[type[Message]] = sorted(
    (cls for cls in DECLARATIONS if cls.__module__.startswith("ottla.messages.")), key=lambda cls: cls.__name__
)
CLASSES_AND_VERSIONS: list[tuple[type[Message], int]] = [
    (cls, version) for cls in CLASSES for version in range(DECLARATIONS[cls].versions[0], DECLARATIONS[cls].versions[1] + 1)
]


def _shape(cls: type, version: int) -> Iterator[Hashable]:
    """What the version has of the class, and of the classes within it."""
    for name, field in FIELDS[cls].items():
        if field.is_in(version):
            yield name, field.is_nullable_in(version), field.is_tagged_in(version)
            element: Any = field
            while isinstance(element, Field):
                element = element.element
            if isinstance(element, type):
                yield tuple(_shape(element, version))


def _first_of_each_shape() -> dict[tuple[type[Message], int], tuple[type[Message], int]]:
    first: dict[Hashable, tuple[type[Message], int]] = {}
    return {
        (cls, version): first.setdefault((cls, version >= DECLARATIONS[cls].flexible, tuple(_shape(cls, version))), (cls, version))
        for cls, version in CLASSES_AND_VERSIONS
    }


FIRST_LIKE = _first_of_each_shape()
"""The first version of the class that has the same fields: their codecs are one text, which a test of test_codecs holds them to."""
DISTINCT_CODECS = list(dict.fromkeys(FIRST_LIKE.values()))

_INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(low, high) for kind, (low, high) in _INTEGERS.items()},
    "float64": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16),
    # Long ones, too: from 127 on a compact length takes two bytes.
    "string": st.text(max_size=4) | st.just("long" * 32),
    "binary": st.binary(max_size=4) | st.just(b"long" * 32),
    "records": st.binary(max_size=70),
}


@cache
def messages(cls: type, version: int, *, narrow: bool = False) -> st.SearchStrategy[Any]:
    """Structs of the class with random values in every field of the version, and defaults elsewhere.

    ``narrow`` keeps to values that make sense: error codes that exist, times that are near.
    """
    fields = {name: _values(field, version, name, narrow) for name, field in FIELDS[cls].items() if field.is_in(version)}
    return st.builds(cls, **fields)


def _values(field: Field, version: int, name: str, narrow: bool) -> st.SearchStrategy[Any]:
    values = _values_not_null(field, version, name, narrow)
    is_absent_by_default = field.kind == "struct" and field.tag is not None
    if field.is_nullable_in(version) or is_absent_by_default:
        values = st.none() | values
    if field.tag is not None and field.default is not None:
        values = st.just(field.default) | values
    return values


def _values_not_null(field: Field, version: int, name: str, narrow: bool) -> st.SearchStrategy[Any]:
    if field.kind == "array":
        element = field.element
        if isinstance(element, Field):
            return st.lists(_values_not_null(element, version, "", narrow), max_size=3)
        return st.lists(messages(element, version, narrow=narrow), max_size=2)
    if field.kind == "struct":
        return messages(field.element, version, narrow=narrow)
    if narrow and name.endswith("error_code"):
        return st.integers(-1, 133)
    if narrow and field.kind in ("int32", "int64") and (name.endswith("_ms") or "timestamp" in name):
        return st.integers(0, 2**31 - 1)
    return _PLAIN[field.kind]


def one_in(share: int) -> settings:
    """So many examples of each class and version: a share of what the profile gives to one test."""
    return settings(max_examples=max(2, settings().max_examples // share))


def name_of(value: Any) -> str:
    """For the names of parametrized tests."""
    return value.__name__ if isinstance(value, type) else f"v{value}" if isinstance(value, int) else str(value)
