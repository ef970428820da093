"""``ottla completion``: a script for a shell, which asks ottla what fits."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "ottla"
VARIABLE = f"_{PROGRAM.upper()}_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands, options, names of topics and groups, and KEY=VALUE of topics.

    \b
    bash: eval "$(ottla completion bash)"             in ~/.bashrc
    zsh:  eval "$(ottla completion zsh)"              in ~/.zshrc
    fish: ottla completion fish > ~/.config/fish/completions/ottla.fish
    """
    import ottla.cli.bash_completion  # noqa: F401 - click's own is replaced
    from ottla.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells of the choice"
    click.echo(kind(cli, {}, PROGRAM, VARIABLE).source())
