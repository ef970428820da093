"""``ottla``: the table of commands, in sections.

A command's module is imported when the command is asked for, so that ``ottla topic list`` does not pay for Spark. Exit codes:
0 done, 1 something failed (an error names its cause and a way out, on stderr) or a plan was shown and not applied, 2 the call itself was
wrong, 3 a pipeline may not continue (``exit_codes.py``).
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from ottla import __version__
from ottla.cli.exit_codes import INTERRUPTED, WRONG_CALL, WRONG_CONFIG, WrongConfig
from ottla.errors import KafkaError, OttlaError

SECTIONS: Final = {
    "First steps": {
        "demo": ("ottla.cli.demo:demo", "Run the demonstration: real flights, three brokers, PySpark."),
        "dev": ("ottla.cli.dev:dev", "Start a temporary broker for development."),
        "help": ("ottla.cli.help:help_command", "Print the help of a command, or of the record formats."),
        "completion": ("ottla.cli.completion:completion", "Print a script that completes commands in a shell."),
    },
    "Topics and records": {
        "topic": ("ottla.cli.topic:topic", "List, create, describe, change and delete topics."),
        "produce": ("ottla.cli.produce:produce", "Write records to a topic."),
        "consume": ("ottla.cli.consume:consume", "Read records from topics."),
    },
    "Groups and transactions": {
        "group": ("ottla.cli.group:group", "List, describe, seek, export and delete consumer groups."),
        "producer": ("ottla.cli.producer:producer", "List the producers that partitions remember."),
        "txn": ("ottla.cli.txn:txn", "List, describe, fence and abort transactions; find hung ones."),
    },
    "Pipelines and SQL": {
        "pipeline": ("ottla.cli.pipeline:pipeline", "Run pipelines on Spark, exactly once; show and reset them."),
        "sql": ("ottla.cli.sql:sql", "Run a SQL query whose tables are topics, on Spark."),
    },
    "Cluster and nodes": {
        "cluster": ("ottla.cli.cluster:cluster", "Run nodes on this machine; status and health of any cluster."),
        "broker": ("ottla.cli.broker:broker", "Start a broker; list, describe and drain a cluster's brokers."),
        "console": ("ottla.cli.console:console", "Serve a page to look at a cluster."),
        "config": ("ottla.cli.config:config", "Show, change, explain and check configuration."),
        "quota": ("ottla.cli.quota:quota", "List and set quotas of users, client ids and addresses."),
        "partition": ("ottla.cli.partition:partition", "Elect leaders of partitions, and move their replicas."),
        "quorum": ("ottla.cli.quorum:quorum", "Show who holds the metadata log, and how far."),
        "feature": ("ottla.cli.feature:feature", "List features and set their levels."),
        "storage": ("ottla.cli.storage:storage", "Format, verify and maintain log directories."),
    },
    "Security": {
        "acl": ("ottla.cli.acl:acl", "List and change who may do what."),
        "certs": ("ottla.cli.certs:certs", "Make a private authority, and certificates signed by it."),
        "token": ("ottla.cli.token:token", "Create, list, renew and expire delegation tokens."),
        "user": ("ottla.cli.user:user", "List, add and delete SCRAM users."),
    },
    "Monitoring and files": {
        "generate": ("ottla.cli.generate:generate", "Print dashboards, alert rules and units."),
        "debug": ("ottla.cli.debug:debug", "Gather what a bug report needs."),
        "dump-log": ("ottla.cli.dump_log:dump_log", "Show what is in a segment file."),
        "check-history": ("ottla.cli.check_history:check_history", "Check a history of client operations for anomalies."),
    },
}
"""Sections of `ottla --help`, in the order in which it prints them."""

EPILOG: Final = "`ottla help COMMAND` describes a command and its options. `-B host:port` or OTTLA_BOOTSTRAP names the brokers."

COMMANDS: Final = {name: command for section in SECTIONS.values() for name, command in section.items()}


class LazyGroup(click.Group):
    """Knows every command's name and help line; imports the command itself on use."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            if name == "version":
                raise click.UsageError("there is no command 'version'; `ottla --version` prints it")
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(sorted(COMMANDS))}"
            raise click.UsageError(f"there is no command {name!r}; {hint}")
        module, _, attribute = COMMANDS[name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), "the table names commands"
        return command

    def invoke(self, context: click.Context) -> object:
        """Runs the command. A refusal leaves with the right that was missing: once the command has ended, that is not known."""
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise ReaderGoneError from None  # click would end with exit code 1
        except KafkaError as error:
            from ottla.cli.missing_rights import missing_right

            right = missing_right(error)
            if right is not None:
                error.add_note(right)
            raise

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))  # one column of names for all sections
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), help_line) for name, (_, help_line) in section.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="ottla")
def cli() -> None:
    """Event streaming that speaks Apache Kafka's wire protocol, with pipelines on Apache Spark."""


class ReaderGoneError(Exception):
    """The reader of standard output has ended, as `head` does."""


def import_command(names: Sequence[str]) -> None:
    """Imports the module of the first command among the names, where there is one; ``main`` does so otherwise."""
    for name in names:
        if name in COMMANDS:
            importlib.import_module(COMMANDS[name][0].partition(":")[0])
            return


def main() -> None:
    """Runs the command that the arguments name; ``entry.py`` calls it.

    Exit code 1 for a command that has done all, and whose last output could not be written.
    """
    try:
        _run()
    except BaseException as end:
        problem = _end_output()
        if problem is None or isinstance(problem, BrokenPipeError) or not isinstance(end, SystemExit) or end.code:
            raise
        click.echo(f"ottla: {_of_output(problem)}", err=True)
        sys.exit(1)


def _end_output() -> OSError | None:
    """Writes what standard output has buffered. Returns why that is not possible: then what is left is dropped.

    Python would try it once more when it ends, and print a traceback. The same is done when a Ctrl-C breaks the write off.
    """
    if sys.stdout is None:  # as a shell has it that closes the stream
        return None
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop_output()
        return error
    except KeyboardInterrupt:
        _drop_output()
        sys.exit(INTERRUPTED)
    return None


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _of_output(error: OSError) -> str:
    return f"standard output could not be written: {error.strerror}"


def _no_utf_8(error: BaseException) -> bytes | None:
    """Returns the argument for which the error came, or what caused it, where its bytes are no UTF-8."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UnicodeEncodeError):
        cause = cause.__cause__
    if cause is None or not any("\udc80" <= character <= "\udcff" for character in cause.object):  # what Python makes of such bytes
        return None
    return os.fsencode(cause.object)


def _run() -> None:
    if "_OTTLA_COMPLETE" in os.environ:
        import ottla.cli.bash_completion  # noqa: F401 - click's own is replaced
    try:
        code = cli.main(standalone_mode=False)
    except click.UsageError as error:
        from ottla.cli.foreign_words import with_words_of_here

        text = with_words_of_here(error)
        if text != error.format_message():
            error = click.UsageError(text, error.ctx)
        error.show()
        sys.exit(WRONG_CALL)
    except click.ClickException as error:
        error.show()
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except ReaderGoneError:
        sys.exit(0)
    except (OttlaError, OSError, UnicodeEncodeError) as error:
        wrong = _no_utf_8(error)
        if wrong is not None:
            click.UsageError(f"{wrong!r} is an argument that is no UTF-8; here it is to be text").show()
            sys.exit(WRONG_CALL)
        if isinstance(error, UnicodeEncodeError):
            raise
        from ottla.cli.output import with_way_out

        problem = _end_output()
        is_of_output = isinstance(error, OSError) and problem is not None and error.errno == problem.errno
        click.echo(f"ottla: {_of_output(problem) if problem is not None and is_of_output else with_way_out(error)}", err=True)
        sys.exit(WRONG_CONFIG if isinstance(error, WrongConfig) else 1)
    sys.exit(code if isinstance(code, int) else 0)
