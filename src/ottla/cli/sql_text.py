"""Statements of SQL in a text: where each ends, and what it is by its first words. Spark's parser takes one statement, and needs a JVM."""

from __future__ import annotations

import difflib
import re
from itertools import pairwise
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<comment>--[^\n]*(?:\n|\Z))
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`)
    |(?P<open>/\*|['"`]|--)
    |(?P<end>;)
    |(?P<word>\w+)
    |(?P<blank>\s+)
    |(?P<other>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_STARTS: Final = frozenset(
    {  # the first words of statements that are none of those
        "begin", "call", "comment", "create", "declare", "desc", "describe", "execute", "explain", "from", "list", "map", "reduce", "reset",
        "select", "set", "show", "table", "use", "values", "with",
    }
)  # fmt: skip
_TABLE: Final = re.compile(r"\b(?:from|join|table|describe|desc)\s+(?:`((?:[^`]|``)+)`|([\w.-]+))(?!\s*\(|[\w.-])", re.IGNORECASE)
_NAMED: Final = re.compile(r"(?:\bwith|,)\s*`?([\w.-]+)`?\s*(?:\([^()]*\)\s*)?as\s*\(", re.IGNORECASE)
_EDGE: Final = re.compile(r"/\*|\*/")
_WRITES: Final = frozenset(
    {  # the first words of statements
        "alter", "analyze", "cache", "clear", "copy", "delete", "drop", "export", "grant", "import", "insert", "load",
        "lock", "merge", "msck", "optimize", "refresh", "repair", "replace", "revoke", "truncate", "uncache", "unlock", "update",
    }
)  # fmt: skip
_TEMPORARY: Final = re.compile(r"create (or replace )?(global )?temp(orary)? view\b")
HELP: Final = """\
select customer, count(*) from orders group by customer;    topics are tables; Spark's SQL
select * from orders timestamp as of '2026-01-01 12:00';    the topic as it was then
show tables [like 'a*'];  describe orders;  explain select ...;
create temporary view big as select ...;                    a name for later statements
set spark.sql.shuffle.partitions = 2;                       a setting of Spark
exit                                                        or Ctrl-D
Columns of values come by --schema TOPIC='id string' or --registry URL of the command: ottla sql --help."""
READS_ONLY: Final = "ottla sql only reads; `ottla produce` writes records, and a pipeline writes what a query makes"


def split(text: str) -> tuple[list[str], str]:
    """Returns the statements of the text that end with a semicolon, without it, and what follows the last of them.

    A semicolon in a text, a quoted name or a comment ends none. Statements of nothing but comments are left out; so is a rest of them.
    """
    found: list[str] = []
    start = position = 0
    has_content = False
    while position < len(text):
        token = _TOKEN.match(text, position)
        assert token is not None, "any character is a token"
        kind, position = token.lastgroup, token.end()
        if kind == "open":  # of a comment with comments within, or of something that does not end
            end = _end_of_comment(text, position) if token[0] == "/*" else None
            has_content = has_content or end is None
            position = len(text) if end is None else end
        elif kind == "end":
            if has_content:
                found.append(text[start : token.start()].strip())
            start, has_content = position, False
        elif kind not in ("comment", "blank"):
            has_content = True
    return found, text[start:].strip() if has_content else ""


def words_of(statement: str) -> list[str]:
    """Returns the bare words of a statement, in lower case, without texts, quoted names and comments."""
    found, position = [], 0
    while position < len(statement):
        token = _TOKEN.match(statement, position)
        assert token is not None, "any character is a token"
        position = token.end()
        if token.lastgroup == "word":
            found.append(token[0].lower())
        elif token.lastgroup == "open":
            end = _end_of_comment(statement, position) if token[0] == "/*" else None
            position = len(statement) if end is None else end
    return found


def wrong_start(words: list[str]) -> str | None:
    """Returns what is wrong with the first word of a statement; None where a statement may start with it, or with no word."""
    if not words or words[0] in _STARTS or words[0] in _WRITES:
        return None
    near = difflib.get_close_matches(words[0], _STARTS, n=1)
    return f"no statement begins with {words[0]!r}" + (f"; did you mean {near[0]}?" if near else "; `help` shows what does")


def tables_of(statement: str) -> list[str]:
    """Returns the names that stand where tables do, without those that the statement itself gives to queries (WITH)."""
    text = "".join(_without_content(token) for token in _TOKEN.finditer(statement))
    own = {name.lower() for name in _NAMED.findall(text)}
    found = [quoted.replace("``", "`") or bare for quoted, bare in _TABLE.findall(text)]
    return list(dict.fromkeys(name for name in found if name.lower() not in own))


def _without_content(token: re.Match[str]) -> str:
    if token.lastgroup == "comment":
        return " "
    return "''" if token.lastgroup == "text" and token[0][0] != "`" else token[0]


def makes_view(words: list[str]) -> bool:
    """Returns whether the statement makes a temporary view, which later statements of the call can name."""
    return _TEMPORARY.match(" ".join(words[:5])) is not None


def is_help(statement: str) -> bool:
    """Returns whether the statement asks what there is."""
    return statement.strip().lower() in ("help", "?")


def is_write(words: list[str]) -> bool:
    """Returns whether the statement would write: Spark's own errors about it speak of catalogs."""
    if not words:
        return False
    inserts = any(first == "insert" and second in ("into", "overwrite") for first, second in pairwise(words))
    return words[0] in _WRITES or inserts or (words[0] == "create" and not makes_view(words))


def _end_of_comment(text: str, position: int) -> int | None:
    """Returns where the comment that is open at the position ends, or None; comments within it count, as in Spark."""
    depth = 1
    for edge in _EDGE.finditer(text, position):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return None
