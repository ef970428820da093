"""The messages of src/ use the house words of STYLE.md; docstrings are left to reviews."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src"
UNWANTED = re.compile(
    r"\b(anew|whoever|nobody|somebody|newcomers?|husks?|folders?|held against|taken up|read in again|has no end|no type of entity"
    r"|(is|are) (told|gone)|tells|hears|stands?|(is|are) named twice|goes whole|(does|do) not lie|whole up to)\b"
    r"|\bbehind (?!in\b)\S"  # "3 records behind in topic" means lagging
)
Found = tuple[int, str]


def messages(tree: ast.AST) -> Iterator[Found]:
    """The line and text of each string that is part of no docstring and has words; of an f-string its constant parts."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value and id(node) not in bare:
            yield node.lineno, node.value


def unwanted_in(source: str) -> list[Found]:
    return [(line, match[0]) for line, text in messages(ast.parse(source)) for match in UNWANTED.finditer(text)]


def test_no_message_has_a_word_that_the_glossary_replaces() -> None:
    paths = sorted(SOURCES.rglob("*.py"))
    assert paths
    found = [
        f"{path.relative_to(SOURCES)}:{line}: {word!r}, see the glossary in STYLE.md"
        for path in paths
        for line, word in unwanted_in(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("raise ValueError('the index is made anew')", "anew"),
        ("raise ValueError(f'{key} stands twice in the request')", "stands"),
        ("help = 'The data folder of the broker.'", "folder"),
        ("text = f'offset {offset} is gone'", "is gone"),
        ("text = f'{count} bytes behind the message'", "behind t"),
        ("log.warning('group_left', reason='whoever asks is told')", "whoever"),
    ],
)
def test_the_search_finds_a_planted_word(source: str, word: str) -> None:
    assert (1, word) in unwanted_in(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""Whoever reads this is told nothing."""',
        "text = f'the group is {lag} records behind in {topic}'",
        "key = 'folder'",
        "raise ValueError('the topic is listed twice')",
    ],
)
def test_the_search_leaves_docstrings_identifiers_and_lag_alone(source: str) -> None:
    assert not unwanted_in(source)
