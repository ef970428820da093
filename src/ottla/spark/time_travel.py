"""``orders timestamp as of '2026-01-01 12:00'`` in a query: the topic as it was then.

Spark has the syntax for tables of its catalogs, and refuses it for views, which topics are. So each place where a topic is named with a
time becomes the name of a view of its own, which ends before the first record that is younger. The time is an expression of Spark's: a
text, or something in parentheses. Texts, quoted names and comments of the query are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.spark.options import invalid

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<name>`[^`]*`|\w+)|(?P<other>.)""", re.DOTALL
)
_KINDS: Final = ("timestamp", "system_time")
_CLAUSES: Final = re.compile(
    "where|group|order|having|join|inner|left|right|full|cross|semi|anti|natural|on|using|union|intersect|except|minus|limit|offset|window|"
    "lateral|tablesample|pivot|unpivot|sort|cluster|distribute|qualify",
    re.IGNORECASE,
)
"""What may follow a table that has no alias."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """A view that a query reads in place of a topic: the topic, and the time as the query has it."""

    view: str
    topic: str
    time: str


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "name" and self.text.lower() in words

    @property
    def name(self) -> str:
        return self.text.strip("`")


def without_comments(query: str) -> str:
    """Returns the query with blanks in place of its comments."""
    return "".join(" " if found.lastgroup == "blank" else found[0] for found in _TOKEN.finditer(query))


def with_views(query: str, topics: Iterable[str]) -> tuple[str, list[AsOf]]:
    """Returns the query, with a view's name for each topic of a time. KafkaError INVALID_CONFIG for a time that cannot be read."""
    known = set(topics)
    tokens = [_Token(found.lastgroup or "", found[0], found.start(), found.end()) for found in _TOKEN.finditer(query)]
    tokens = [token for token in tokens if token.kind != "blank"]
    made: list[AsOf] = []
    parts: list[str] = []
    done = index = 0
    while index < len(tokens):
        token = tokens[index]
        at = index + 1 + (index + 1 < len(tokens) and tokens[index + 1].is_word("for"))
        if token.kind != "name" or token.name not in known or not _is_as_of(tokens[at : at + 3]):
            index += 1
            continue
        if tokens[at].is_word("version"):
            raise invalid(f"{token.name}: a topic has no versions; say timestamp as of, or where offset < ...")
        end = _end_of_time(query, tokens, at + 3)
        view = f"{token.name} as of {len(made) + 1}"
        made.append(AsOf(view, token.name, query[tokens[at + 3].start : tokens[end - 1].end]))
        parts += [query[done : token.start], f"`{view}`", "" if _has_alias(tokens, end) else f" as `{token.name}`"]
        done, index = tokens[end - 1].end, end
    return "".join([*parts, query[done:]]), made


def _is_as_of(tokens: list[_Token]) -> bool:
    return len(tokens) == 3 and tokens[0].is_word(*_KINDS, "version") and tokens[1].is_word("as") and tokens[2].is_word("of")


def _end_of_time(query: str, tokens: list[_Token], start: int) -> int:
    """Returns the index after the time that starts there."""
    if start < len(tokens) and tokens[start].kind == "text":
        return start + 1
    depth = 0
    for index in range(start, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[index].text, 0)
        if depth == 0:
            if index == start:
                break
            return index + 1
    given = query[tokens[start].start :] if start < len(tokens) else ""
    raise invalid(
        f"timestamp as of {given}: the time must be a text, as '2026-01-01 12:00:00', or in parentheses, as (now() - interval 1 hour)"
    )


def _has_alias(tokens: list[_Token], index: int) -> bool:
    if index >= len(tokens):
        return False
    return tokens[index].kind == "name" and _CLAUSES.fullmatch(tokens[index].text) is None
