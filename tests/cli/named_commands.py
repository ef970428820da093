"""Commands that a text names: each of them is there, with its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from ottla.cli.main import COMMANDS, cli

NAMED = re.compile(r"(?<!`)`(ottla [a-z][^`\n]*)`(?!`)")


def named_in(text: str) -> Iterator[str]:
    """What is between backquotes and begins with the program's name."""
    for found in NAMED.finditer(text):
        yield found[1]


def named_shortly_in(text: str) -> Iterator[str]:
    """What a page of commands has between backquotes without the program's name; ``[...]`` is what may be left out.

    Commands of a list that ends in "(which have `--option`)" have that option.
    """
    for found in re.finditer(r"`([a-z-]+(?: [^`]*)?)`", text):
        if found[1].split()[0] in COMMANDS:
            yield "ottla " + re.sub(r"[\[\]\\]", "", found[1])
    for listed in re.finditer(r"((?:`[a-z -]+`(?:,\s+|\s+and\s+|\s+))+)\(which have\s+`(--[a-z-]+)`\)", text):
        for command in re.findall(r"`([^`]+)`", listed[1]):
            yield f"ottla {command} {listed[2]}"


def fault_of(command: str) -> str | None:
    """What is not there of a command as somebody would type it; a word in capitals stands for any, ``a|b`` for both, ``...`` for more."""
    words = shlex.split(command)[1:]
    found: click.Command = cli
    context = click.Context(cli)
    while words and isinstance(found, click.Group) and words[0] != "..." and not words[0].isupper():
        each = []
        for word in words.pop(0).split("|"):
            try:
                part = found.get_command(context, word)
            except click.UsageError as error:
                return str(error)
            if part is None:
                return f"there is no command {word!r}"
            each.append(part)
        found, context = each[0], click.Context(each[0], parent=context)
    options = {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"-h", "--help"}
    given = [word for words_or in words for word in words_or.split("|") if re.match(r"--?[A-Za-z]", word)]
    unknown = [word for word in given if word.partition("=")[0] not in options and word[:2] not in options]
    return f"there is no option {unknown[0]}" if unknown else None
