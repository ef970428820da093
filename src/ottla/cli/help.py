"""``ottla help``: the help of a command, or of the formats of records."""

from __future__ import annotations

import difflib

import click

FORMAT = "format"


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> None:
    """Print the help of COMMAND; `ottla help format` prints the language of -f."""
    if words in ((FORMAT,), (f"{FORMAT}s",)):
        from ottla.cli.record_format import LANGUAGE

        click.echo(LANGUAGE, nl=False)
        return
    if len(words) == 1 and difflib.get_close_matches(words[0], [FORMAT]):
        raise click.UsageError(f"there is no command {words[0]!r}; did you mean `ottla help {FORMAT}`?")
    from ottla.cli.main import cli

    found = click.Context(cli, info_name="ottla")
    for word in words:
        if not isinstance(found.command, click.Group):
            raise click.UsageError(f"{found.command_path} has no commands of its own")
        command = found.command.get_command(found, word)
        if command is None:
            raise click.UsageError(f"{found.command_path} has no command {word!r}; it has {', '.join(found.command.list_commands(found))}")
        found = click.Context(command, info_name=word, parent=found)
    click.echo(found.command.get_help(found))
