"""``ottla``: the table of commands.

A command's module is imported when the command is asked for, so that ``ottla topic list`` does not pay for Spark. Exit codes:
0 done, 1 something failed (an error names its cause and a way out, on stderr) or a plan was shown and not applied, 2 the call itself was
wrong.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from typing import Final

import click

from ottla import __version__
from ottla.errors import OttlaError

COMMANDS: Final = {
    "acl": ("ottla.cli.acl:acl", "List and change who may do what."),
    "broker": ("ottla.cli.broker:broker", "Start a broker from a properties file; list, describe and drain a cluster's brokers."),
    "certs": ("ottla.cli.certs:certs", "Make a private authority, and certificates for nodes and clients."),
    "check-history": ("ottla.cli.check_history:check_history", "Say which anomalies a history of client operations has."),
    "cluster": ("ottla.cli.cluster:cluster", "Run several nodes on this machine; status and health of any cluster."),
    "completion": ("ottla.cli.completion:completion", "Print a script that completes commands in a shell."),
    "config": ("ottla.cli.config:config", "Show, change, explain and check configuration."),
    "console": ("ottla.cli.console:console", "Serve a page to look at a cluster."),
    "consume": ("ottla.cli.consume:consume", "Read records from topics."),
    "debug": ("ottla.cli.debug:debug", "Gather what a bug report needs."),
    "demo": ("ottla.cli.demo:demo", "Run the demonstration: a year of real flights through three brokers and PySpark."),
    "dev": ("ottla.cli.dev:dev", "Start a temporary broker for development."),
    "dump-log": ("ottla.cli.dump_log:dump_log", "Show what is in a segment file."),
    "feature": ("ottla.cli.feature:feature", "List features and set their levels."),
    "generate": ("ottla.cli.generate:generate", "Print dashboards, alert rules and units."),
    "group": ("ottla.cli.group:group", "List, describe, seek, export and delete consumer groups."),
    "help": ("ottla.cli.help:help_command", "Print the help of a command, or of the record formats."),
    "partition": ("ottla.cli.partition:partition", "Elect leaders of partitions, and move their replicas."),
    "pipeline": ("ottla.cli.pipeline:pipeline", "Run pipelines on Spark, exactly once; show and reset them."),
    "producer": ("ottla.cli.producer:producer", "List the producers that partitions remember."),
    "produce": ("ottla.cli.produce:produce", "Write records to a topic."),
    "quorum": ("ottla.cli.quorum:quorum", "Show who holds the metadata log, and how far."),
    "quota": ("ottla.cli.quota:quota", "List and set quotas of users, client ids and addresses."),
    "sql": ("ottla.cli.sql:sql", "Run a SQL query whose tables are topics, on Spark."),
    "storage": ("ottla.cli.storage:storage", "Format, verify and maintain log directories."),
    "token": ("ottla.cli.token:token", "Create, list, renew and expire delegation tokens."),
    "topic": ("ottla.cli.topic:topic", "List, create, describe, change and delete topics."),
    "user": ("ottla.cli.user:user", "List, add and delete SCRAM users."),
    "txn": ("ottla.cli.txn:txn", "List, describe, fence and abort transactions; find those that hang."),
}


class LazyGroup(click.Group):
    """Knows every command's name and help line; imports the command itself on use."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(sorted(COMMANDS))}"
            raise click.UsageError(f"there is no command {name!r}; {hint}")
        module, _, attribute = COMMANDS[name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), "the table names commands"
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in sorted(COMMANDS.items())])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ottla")
def cli() -> None:
    """Event streaming that speaks Apache Kafka's wire protocol, with pipelines on Apache Spark."""


def main() -> None:
    """Runs the console script."""
    try:
        code = cli.main(standalone_mode=False)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has ended, as `head` does
        sys.exit(0)
    except (OttlaError, OSError) as error:
        from ottla.cli.output import way_out

        click.echo(f"ottla: {error}{way_out(error)}", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
