"""The columns of a schema as far as they can be checked without Spark, whose start takes seconds.

Spark's own parser needs its JVM. Here only names of types are looked at, where it is sure that a word is one; what this does not understand
is left to Spark.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

TYPES: Final = frozenset(
    {
        "array", "bigint", "binary", "boolean", "byte", "char", "character", "date", "dec", "decimal",
        "double", "float", "geography", "geometry", "int", "integer", "interval", "long", "map", "numeric",
        "real", "short", "smallint", "string", "struct", "time", "timestamp", "timestamp_ltz",
        "timestamp_ntz", "tinyint", "varchar", "variant", "void",
    }
)  # fmt: skip
MEANT: Final = {
    "bool": "boolean", "text": "string", "str": "string", "json": "string", "uuid": "string", "number": "double", "datetime": "timestamp",
    "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "uint32": "bigint", "float32": "float", "float64": "double",
    "bytes": "binary", "list": "array", "object": "struct",
}  # fmt: skip
"""Names of other systems, with Spark's."""
_TOKEN: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)+`|\w+|[^\s\w]""")
_WORD: Final = re.compile(r"`.+`|\w+", re.DOTALL)


def schema_problem(columns: str) -> str | None:
    """Returns what is wrong with the columns (``id string, amount double``); None where nothing is known to be."""
    fields: list[list[str]] = [[]]
    depth = 0
    for token in _TOKEN.findall(columns):
        depth += (token in "(<") - (token in ")>")
        if token == "," and depth == 0:
            fields.append([])
        else:
            fields[-1].append(token)
    if not any(fields):
        return "it has no columns: give names with types, such as 'id string, amount double'"
    if len(fields) == 1 and fields[0][0].lower() in TYPES:
        return None  # one type, as in struct<id: string>, or a column that is called like one
    return next(filter(None, map(_field_problem, fields)), None)


def _field_problem(tokens: list[str]) -> str | None:
    """Returns what is wrong with a column's name and type."""
    if not tokens or not _WORD.fullmatch(tokens[0]):
        return None
    name, kind = tokens[0].strip("`"), tokens[1:]
    if kind[:1] == [":"]:
        del kind[0]
    if not kind:
        return f"column {name} has no type, such as string, long or double"
    return _type_problem(name, kind)


def _type_problem(name: str, kind: list[str]) -> str | None:
    """Returns what is wrong with the type of the column of that name: itself, or of its elements or fields."""
    found, inner = kind[0].lower(), kind[1:]
    if not re.fullmatch(r"\w+", found):
        return None
    if found not in TYPES:
        near = [MEANT[found]] if found in MEANT else difflib.get_close_matches(found, TYPES, n=1)
        return f"column {name} has type {kind[0]}, which Spark does not know{f'; did you mean {near[0]}?' if near else ''}"
    if found == "array" and inner[:1] == ["<"]:
        return _type_problem(name, inner[1:])
    return None
