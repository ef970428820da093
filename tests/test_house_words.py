"""The messages of src/ use the house words of STYLE.md. Its docstrings and comments do so more and more: what they lack may only fall."""

import ast
import functools
import io
import re
import tokenize
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
Function = ast.FunctionDef | ast.AsyncFunctionDef


IN_PROSE = {
    r"told|tells?|telling": 2,
    r"lie|lies|lay": 0,
    r"no more|any more": 3,
    r"anew": 0,
    r"somebody|nobody|whoever|everybody|anybody": 0,
    r"begins?|began|begun|beginning": 19,
    r"those of": 2,
    r"the one that": 0,
}
"""How often each may occur in docstrings and comments: lower the number where you have lowered the count."""
FRAGMENT = re.compile(
    r"(of|from|for|in|on|by|with|over|at|as|who|whom|what|where|when|how|not|whether|beside|below|nothing|between|through|until|which|why|to"
    r"|is|has|does|whoever|whatever|that|those|it|there|while|without|around|under|after|before|behind|like|known|made)\b",
    re.IGNORECASE,
)
"""What a class docstring does not begin with: it begins with a noun phrase that says what an instance is."""
BEGINS_WITH_A_VERB = re.compile(r"(?!(?:This|Its|As|Always|Unless|Was|Is)\b)[A-Z][a-z]+s\b(?!')|(?:True|False) (?:when|unless|always)\b")
"""What a function's docstring begins with: a verb in the third person ("Returns", "Appends"), or "True when"."""
NOUN = re.compile(
    r"(Batches|Brokers|Bytes|Clients|Connections|Consumers|Directories|Entries|Epochs|Errors|Events|Faults|Files|Flights|"
    r"Followers|Groups|Handlers|Ids|Indexes|Items|Jobs|Keys|Leaders|Lines|Listeners|Mechanisms|Members|Messages|Milliseconds|"
    r"Names|Nodes|Observers|Offsets|Others|Partitions|Ports|Processes|Producers|Quotas|Readers|Replicas|Requests|Rows|Seconds|"
    r"Secrets|Segments|Sequences|Settings|Sinks|Snapshots|Streams|Strings|Structures|Targets|Tasks|Threads|Topics|Values|"
    r"Versions|Views|Voters|Waiters)\b"
)
"""Nouns that look like verbs in the third person."""


@functools.cache
def read(source: str) -> tuple[list[Found], list[str], list[ast.ClassDef | Function]]:
    """Messages, docstrings, and what may have docstrings, without bodies; the source is parsed once for all tests.

    A message is a string that is part of no docstring and has words, with its line; of an f-string its constant parts.
    """
    nodes = list(ast.walk(ast.parse(source)))
    bare = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    ids = set(map(id, bare))
    strings = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    messages = [(node.lineno, str(node.value)) for node in strings if " " in str(node.value) and id(node) not in ids]
    named = [node for node in nodes if isinstance(node, ast.ClassDef | Function)]
    for node in named:
        del node.body[1:]  # what is kept is small
    return messages, [node.value for node in bare if isinstance(node.value, str)], named


def unwanted_in(source: str) -> list[Found]:
    messages, _, _ = read(source)
    return [(line, match[0]) for line, text in messages for match in UNWANTED.finditer(text)]


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


def prose(source: str) -> Iterator[str]:
    """Its docstrings and comments."""
    _, docstrings, _ = read(source)
    yield from docstrings
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def sources() -> list[tuple[Path, str]]:
    found = [(path, path.read_text(encoding="utf-8")) for path in sorted(SOURCES.rglob("*.py"))]
    assert found
    return found


def test_a_directory_has_one_name_in_identifiers_too() -> None:
    assert not [path for path, source in sources() if "folder" in source.lower()]


def test_docstrings_and_comments_have_ever_fewer_words_that_the_glossary_replaces() -> None:
    text = "\n".join(part for _, source in sources() for part in prose(source))
    counts = {words: len(re.findall(rf"\b({words})\b", text, re.IGNORECASE)) for words in IN_PROSE}
    more = {words: count for words, count in counts.items() if count > IN_PROSE[words]}
    assert not more, "docstrings and comments have these words more often than before; STYLE.md has the words of the house"


def test_the_count_sees_docstrings_comments_and_what_explains_a_value() -> None:
    planted = '"""He is told."""\nx = 1  # nobody\n"""Anew."""\ny = "whoever"\n'
    assert sorted(prose(planted)) == ["# nobody", "Anew.", "He is told."]


def fragments(source: str) -> list[str]:
    """Classes whose docstrings are no noun phrases."""
    _, _, named = read(source)
    return [node.name for node in named if isinstance(node, ast.ClassDef) and FRAGMENT.match(ast.get_docstring(node) or "")]


def test_a_class_docstring_says_what_an_instance_is() -> None:
    found = [f"{path.relative_to(SOURCES)}: {name}" for path, source in sources() for name in fragments(source)]
    assert not found, "the docstring says what an instance is, as in 'The log of one broker.':\n" + "\n".join(found)


def test_the_search_finds_a_planted_fragment() -> None:
    assert fragments('class A:\n    """Of one broker."""\nclass B:\n    """The log of one broker."""\n') == ["A"]


def without_verb(source: str) -> list[str]:
    """Functions whose docstrings do not begin with a verb, leaving out properties, and commands, which command: "List the topics."."""
    _, _, named = read(source)
    functions = [node for node in named if isinstance(node, Function)]
    found = []
    for node in functions:
        text, marks = ast.get_docstring(node), [ast.unparse(each) for each in node.decorator_list]
        if not text or any("property" in mark or "command" in mark or "group" in mark for mark in marks):
            continue
        if not BEGINS_WITH_A_VERB.match(text) or NOUN.match(text):
            found.append(node.name)
    return found


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    found = [f"{path.relative_to(SOURCES)}: {name}" for path, source in sources() for name in without_verb(source)]
    assert not found, "the docstring begins with a verb, as in 'Returns the end offset.':\n" + "\n".join(found)


def test_the_search_finds_a_planted_docstring_without_a_verb() -> None:
    planted = [
        'def a():\n    """The end offset."""\n',
        'def b():\n    """Returns the end offset."""\n',
        '@property\ndef c(self):\n    """The end offset."""\n',
        'def d():\n    """True when it is closed."""\n',
        'async def e():\n    """What was asked."""\n',
        'def f():\n    """Batches of one segment."""\n',
        '@group.command()\ndef g():\n    """List the topics."""\n',
    ]
    assert without_verb("".join(planted)) == ["a", "e", "f"]
