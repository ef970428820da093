"""Words of kafka-*.sh and rpk that a call has by habit, and what is meant here: the end of an error about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import click

from ottla.cli.client_settings import words_of

OPTIONS: Final[Mapping[str, str]] = {
    "--add-config": "KEY=VALUE is an argument of `ottla config set`",
    "--broker-list": "-B HOST:PORT names the brokers",
    "--brokers": "-B HOST:PORT names the brokers",
    "--broker": "-B HOST:PORT names the brokers",
    "--consumer-property": "-X KEY=VALUE sets a property of the client",
    "--consumer.config": "--command-config FILE has properties of the client",
    "--entity-default": "--brokers is what is set for all brokers",
    "--entity-name": "--topic NAME, --broker ID, --brokers or --group NAME says whose configuration it is",
    "--entity-type": "--topic NAME, --broker ID, --brokers or --group NAME says whose configuration it is",
    "--execute": "--yes applies a plan",
    "--from-beginning": "reading begins at the start where -o does not say otherwise",
    "--isolation-level": "--read-committed leaves out what no transaction has committed",
    "--key-separator": "-f '%k:%v\\n' has a key before the value: `ottla help format`",
    "--max-messages": "-n COUNT ends after so many records",
    "--parse-key": "-f '%k:%v\\n' has a key before the value: `ottla help format`",
    "--print-key": "-f '%k %v\\n' prints the key: `ottla help format`",
    "--print-value": "-f '%v\\n' prints the value: `ottla help format`",
    "--producer-property": "-X KEY=VALUE sets a property of the client",
    "--producer.config": "--command-config FILE has properties of the client",
    "--property": "-f says how records are read and printed: `ottla help format`",
    "--replication-factor": "-r COUNT is the number of replicas",
    "--reset-offsets": "`ottla group seek GROUP --to PLACE` does it",
    "--shift-by": "--by COUNT moves by so many records",
    "--timeout-ms": "--timeout SECONDS ends when no record comes",
    "--to-datetime": "--to @TIME is the first offset of a time",
    "--to-earliest": "--to start is the first offset",
    "--to-latest": "--to end is the end",
    "--to-offset": "--to OFFSET is an offset",
    "--formatter": "-f says how records are printed: `ottla help format`",
    "-K": "-f '%k:%v\\n' has a key before the value: `ottla help format`",
    "-b": "-B HOST:PORT names the brokers",
    "-t": "the topic is an argument, without an option",
    "--topic": "the topic is an argument, without an option",
}
"""What stands for an option that a command does not have; an option that it has is never asked for here."""

OF_ONE_COMMAND: Final[Mapping[tuple[str, str], str]] = {
    ("config set", "--broker-defaults"): "--brokers is what is set for all brokers",
    ("config get", "--broker-defaults"): "--brokers is what is set for all brokers",
    ("config set", "--delete-config"): "-d KEY removes a value",
    ("quota set", "--add-config"): "KEY=VALUE is an argument of `ottla quota set`",
    ("quota set", "--delete-config"): "-d KEY removes a quota",
    ("quota set", "--entity-default"): "--user '<default>' is every other user",
    ("quota set", "--entity-name"): "--user NAME, --client-id NAME or --ip NAME says whose quota it is",
    ("quota set", "--entity-type"): "--user NAME, --client-id NAME or --ip NAME says whose quota it is",
    ("quota set", "--user-defaults"): "--user '<default>' is every other user",
    ("consume", "--format"): "-f json prints each record as a line of JSON",
    ("consume", "--json"): "-f json prints each record as a line of JSON",
    ("consume", "-c"): "-n COUNT ends after so many records",
    **{(command, option): "the file is an argument" for command in ("storage format", "broker start") for option in ("-c", "--config")},
    **{
        ("storage format", option): "controller.quorum.voters of the file says who votes; a lone broker needs no formatting"
        for option in ("-s", "--standalone", "-I", "--initial-controllers", "-N", "--no-initial-controllers")
    },
    ("dev", "-c"): "-X KEY=VALUE sets a key of the broker",
    **{
        (f"group {command}", option): f"the group is an argument: `ottla group {command} GROUP`"
        for command in ("describe", "seek", "delete", "export", "import", "delete-offsets")
        for option in ("--group", "-g")
    },
    ("group list", "--state"): "each row has the state: `ottla group list --json` is for programs that choose",
    ("produce", "--file"): "records are read from standard input: `ottla produce TOPIC < FILE`",
    ("topic alter", "--set"): "-c KEY=VALUE sets a configuration",
    ("topic alter", "--add-config"): "-c KEY=VALUE sets a configuration",
    ("topic alter", "--unset"): "-d KEY removes a configuration",
    ("topic alter", "--delete"): "-d KEY removes a configuration",
    ("topic alter", "-p"): "`ottla topic add-partitions NAME -p COUNT` gives it more partitions",
    ("topic alter", "--partitions"): "`ottla topic add-partitions NAME -p COUNT` gives it more partitions",
    ("topic alter", "-r"): "`ottla partition reassign` gives its partitions other replicas",
    ("topic alter", "--replicas"): "`ottla partition reassign` gives its partitions other replicas",
}
"""What stands for an option of another command, which is meant here otherwise than elsewhere."""
OF_EVERY_COMMAND: Final = {
    "-B": "-B HOST:PORT",
    "--bootstrap-server": "-B HOST:PORT",
    "-X": "-X KEY=VALUE",
    "--command-config": "--command-config FILE",
}
"""Options that follow the command, and not the group that it is in."""

COMMANDS: Final[Mapping[tuple[str, str], str]] = {
    ("acl", "add"): "`ottla acl allow` or `ottla acl deny`",
    ("acl", "create"): "`ottla acl allow` or `ottla acl deny`",
    ("acl", "remove"): "`ottla acl delete`",
    ("broker", "decommission"): "`ottla broker drain ID --replicas`, then a stop and `ottla broker unregister ID`",
    ("broker", "remove"): "`ottla broker drain ID --replicas`, then a stop and `ottla broker unregister ID`",
    ("cluster", "config"): "`ottla config`",
    ("cluster", "info"): "`ottla cluster status`",
    ("cluster", "logdirs"): "`ottla broker logdirs`",
    ("cluster", "maintenance"): "`ottla broker drain`",
    ("cluster", "metadata"): "`ottla cluster status`, `ottla broker list` or `ottla topic list`",
    ("cluster", "partitions"): "`ottla partition`",
    ("cluster", "quotas"): "`ottla quota`",
    ("group", "members"): "`ottla group describe GROUP --members`",
    ("group", "offset-delete"): "`ottla group delete-offsets`",
    ("group", "reset"): "`ottla group seek`",
    ("group", "reset-offsets"): "`ottla group seek`",
    ("topic", "alter-config"): "`ottla topic alter`",
    ("topic", "consume"): "`ottla consume`",
    ("topic", "produce"): "`ottla produce`",
    ("topic", "trim-prefix"): "`ottla topic delete-records`",
    ("user", "create"): "`ottla user add`",
}
"""What stands for a command that a group does not have."""


_EXTRA: Final = re.compile(r"Got unexpected extra arguments? \((.+)\)")
OF_AN_ARGUMENT: Final[Mapping[str, tuple[str, str]]] = {
    "group seek": ("group_id", "`ottla group seek {} --to {}`"),
    "produce": ("topic", "`echo {1} | ottla produce {0}`, since records come from standard input,"),
    "topic alter": ("name", "`ottla topic alter {} -c {}`"),
}
"""The call that is meant where a value follows the name without its option: the parameter with the name, and the call."""


def _with_its_option(text: str, context: click.Context) -> str | None:
    """Returns the call in which the extra arguments have their option; None where that is not known."""
    parameter, call = OF_AN_ARGUMENT.get(words_of(context), ("", ""))
    found, name = _EXTRA.search(text), context.params.get(parameter)
    if found is None or name is None:
        return None
    given = found[1].split()
    if words_of(context) == "topic alter" and given[0].startswith("partitions="):
        return f"`ottla topic add-partitions {name} -p {given[0].partition('=')[2]}`"
    return call.format(name, " -c ".join(given) if "-c" in call else given[0])


def with_words_of_here(error: click.UsageError) -> str:
    """Returns the error as one sentence, with the option or command that is meant, or all commands of the group."""
    text, context = error.format_message().removesuffix("."), error.ctx
    command = None if context is None else context.command
    if isinstance(error, click.NoSuchOption):
        name = error.option_name.removeprefix("--")
        if isinstance(command, click.Group) and context is not None and name in command.list_commands(context):
            return f"{text}; it is a command: `{context.command_path} {name}`"
        if isinstance(command, click.Group) and context is not None and error.option_name in OF_EVERY_COMMAND:
            place = f"{context.command_path} COMMAND {OF_EVERY_COMMAND[error.option_name]}"
            return f"{text.partition('. Did you mean')[0]}; it follows the command: `{place}`"
        words = "" if context is None else words_of(context)
        meant = OF_ONE_COMMAND.get((words, error.option_name)) or OPTIONS.get(error.option_name)
        return error.format_message() if meant is None else f"{text.partition('. Did you mean')[0]}; {meant}"
    if context is not None and (call := _with_its_option(text, context)) is not None:
        return f"{text}; {call} is meant"
    if isinstance(error, click.NoSuchCommand) and isinstance(command, click.Group) and context is not None:
        meant = COMMANDS.get((context.info_name or "", error.command_name))
        if meant is not None:
            return f"{text.partition('. Did you mean')[0]}; {meant} does it"
        if "Did you mean" not in text:
            return f"{text}; the commands are {', '.join(command.list_commands(context))}"
    return error.format_message()
