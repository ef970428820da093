"""What commands print: a table for people, or JSON for programs.

With ``--format json`` standard output holds one JSON document and nothing else; diagnostics go to standard error.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeVar

import click
import msgspec

from ottla.cli.client_settings import client_options
from ottla.cli.local_brokers import SHOWN, bootstrap_default, note_settings_of
from ottla.cli.missing_rights import missing_right
from ottla.cli.os_errors import way_out_of_system
from ottla.cli.starting import how_to_start
from ottla.cli.tried_addresses import NOT_SERVING, try_addresses
from ottla.client.out_of_reach import BrokerOutOfReach
from ottla.errors import ErrorCode, KafkaError

F = TypeVar("F", bound=Callable[..., Any])
_JSON: Final = "ottla.json"
PLANNED_NAMES_MAX: Final = 20
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that end a line, move a terminal's cursor, or turn the direction of what follows."""
_ABSENT_TOPIC: Final = re.compile(r"topic '([^']*)' does not exist")


def format_option(function: F) -> F:
    """Adds ``--format text|json``, which every command has that prints something; ``--json`` is short for it."""
    option = click.option(
        "--format",
        "output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        callback=lambda context, _, value: "json" if context.meta.get(_JSON) else value,
        help="The output format; --json is short for json.",
    )
    alias = click.option("--json", is_flag=True, hidden=True, is_eager=True, expose_value=False, callback=_note_json)
    return alias(option(function))


def _note_json(context: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given:
        context.meta[_JSON] = True


def log_level_option(default: str) -> Callable[[F], F]:
    """Adds ``--log-level``."""
    levels = click.Choice(["debug", "info", "warning", "error"])
    return click.option("--log-level", type=levels, default=default, show_default=True, help="The least level that is logged.")


def override_option(function: F) -> F:
    """Adds ``-X KEY=VALUE``, any number of them."""
    option = click.option(
        "-X",
        "--override",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="A configuration key; takes precedence over the file and the environment.",
    )
    return option(function)


def bootstrap_option(function: F) -> F:
    """Adds ``-B host:port``, or OTTLA_BOOTSTRAP, and how brokers are reached (``client_settings.py``)."""
    option = click.option(
        "-B",
        "--bootstrap-server",
        "bootstrap",
        envvar="OTTLA_BOOTSTRAP",
        show_envvar=True,
        default=bootstrap_default,
        show_default=SHOWN,
        callback=_checked,
        help="Bootstrap servers: host:port, comma-separated.",
    )
    return option(client_options(function))


def _checked(context: click.Context, parameter: click.Parameter, servers: str) -> str:
    from ottla.client.bootstrap import parse_bootstrap

    with wrong_call():
        parse_bootstrap(servers)
    note_settings_of(servers)
    return servers


@contextlib.contextmanager
def wrong_call() -> Iterator[None]:
    """Turns a KafkaError within into the caller's: UsageError, exit code 2."""
    try:
        yield
    except KafkaError as error:
        raise click.UsageError(error.message) from error


def say_connectivity(problem: KafkaError | None) -> None:
    """Prints what a client says of its brokers, on standard error as it changes."""
    if problem is None:
        complain("reconnected")
    elif problem.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
        complain(f"the login is refused: {problem.message}")
    else:
        complain(f"no broker can be reached, still trying: {problem.message}")


@contextlib.contextmanager
def said_warnings() -> Iterator[None]:
    """Prints what a client warns of meanwhile on standard error, each with its way out."""
    logger, handler = logging.getLogger("ottla.client"), _Warnings(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Warnings(logging.Handler):
    """Warnings of a client, as lines of a command."""

    def emit(self, record: logging.LogRecord) -> None:
        from ottla.client.producer_ids import NO_ID

        text = record.getMessage()
        absent = _ABSENT_TOPIC.match(text)
        way = "; `ottla cluster health` says what to start" if NO_ID in text else ""
        complain(f"{text}{way}" if absent is None else f"{text}; `ottla topic create {absent[1]}` creates it")


def complain(text: str) -> None:
    """Prints one line on standard error."""
    click.echo(f"ottla: {text}", err=True)


def names_of_plan(names: Sequence[str], kind: str) -> str:
    """Returns the names for the end of a plan; of many their number, once each is printed on a line of its own."""
    if len(names) <= PLANNED_NAMES_MAX:
        return ", ".join(names)
    for name in names:
        click.echo(name, err=True)
    return f"these {len(names):,} {kind}"


def end_of_plan(text: str) -> NoReturn:
    """Ends after a plan that was only shown: exit code 1, for every command that has ``--yes``."""
    click.echo(f"{text}; add --yes to apply it", err=True)
    sys.exit(1)


def end_with(problem: str | None) -> None:
    """Ends with exit code 1 where there is a problem, which standard error shows, whatever else was printed."""
    if problem is not None:
        complain(problem)
        sys.exit(1)


_SILENT: Final = (
    f"; no client gets an answer there, and none is refused: {NOT_SERVING}, or a firewall or a wrong address is in the way; "
    "`ottla cluster health -B` with the addresses of all brokers says which of them refuse"
)
_WAYS_OUT: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "; `ottla topic list` shows the topics, and `ottla topic describe NAME` their partitions",
    ErrorCode.NOT_CONTROLLER: "; `ottla cluster health` says what to start",
    ErrorCode.GROUP_ID_NOT_FOUND: "; `ottla group list` shows the groups",
    ErrorCode.INVALID_UPDATE_VERSION: "; `ottla feature list` shows the levels",
    ErrorCode.BROKER_NOT_AVAILABLE: "; `ottla broker list` shows the brokers",
    ErrorCode.REQUEST_TIMED_OUT: "; `ottla cluster health` says what is wrong",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "; this is a listener of controllers: -B takes the address of a broker's listener for clients",
    ErrorCode.SECURITY_DISABLED: "; ACLs need authorizer.class.name in the configuration of each node",
    ErrorCode.TOPIC_ALREADY_EXISTS: "; --if-not-exists accepts that, and `ottla topic describe NAME` shows it",
    ErrorCode.INVALID_REPLICATION_FACTOR: "; start more brokers, or give -r no more than there are: `ottla broker list` shows them",
    ErrorCode.OFFSET_OUT_OF_RANGE: "; `ottla topic offsets TOPIC` shows the first and the last offset of each partition",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "; stop the members that read the topic first: `ottla group describe GROUP --members` shows them",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "; `ottla storage info FILE` on each node shows whose cluster it is of",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "; `ottla txn list` shows the transactional ids",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "; --command-config names a file with a user, -B a listener with SASL",
}


def is_out_of_reach(error: BaseException) -> bool:
    """Returns whether no broker of the cluster took a connection."""
    if isinstance(error, BrokerOutOfReach) or not isinstance(error, KafkaError):
        return False
    return error.code == ErrorCode.NETWORK_EXCEPTION and "no broker at" in error.message


def is_silent(error: BaseException) -> bool:
    """Returns whether no broker answered where a connection was not refused either: a process is stopped there, or packets are lost."""
    return is_out_of_reach(error) and str(error).endswith(("timed out", "no answer"))


@contextlib.contextmanager
def asking_a_cluster(servers: str) -> Iterator[None]:
    """Has errors of a cluster that answers nowhere say what each of its addresses does: another broker would be another cluster."""
    try:
        yield
    except KafkaError as error:
        if not is_out_of_reach(error):
            raise
        from ottla.client.bootstrap import parse_bootstrap

        addresses = parse_bootstrap(servers)
        raise KafkaError(error.code, f"{error.message}; {try_addresses(addresses).said(asked=len(addresses))}") from error


def with_way_out(error: BaseException) -> str:
    """Returns the error as one sentence, with what to try next."""
    text, end = str(error), way_out(error)
    if isinstance(error, KafkaError) and error.code == ErrorCode.INVALID_CONFIG:
        from ottla.client.settings import by_keys

        text = by_keys(text)
    return f"{text.removesuffix('.')}{end}" if end else text


def way_out(error: BaseException) -> str:
    """Returns what to try next, as the end of the error's sentence; empty where the error says it itself."""
    if isinstance(error, BrokerOutOfReach):
        return how_to_start([error.node_id])
    if isinstance(error, KafkaError):
        if "could not register in" in error.message:
            more = "initial.broker.registration.timeout.ms is how long a start waits, and node_waits in the log says for what"
            return f"; {more}; `ottla cluster health` with the addresses of all brokers says what to start"
        if "`" in error.message or "did you mean" in error.message:
            return ""
        if error.message.startswith("ZooKeeper at ") and error.code == ErrorCode.REQUEST_TIMED_OUT:  # no broker could say more
            return "; see that ZooKeeper runs there, and that this machine reaches it (zookeeper.connect, --zookeeper of a command)"
        if is_silent(error):
            return _SILENT
        if is_out_of_reach(error) and "[Errno -" in error.message and "Connect call failed" not in error.message:  # of getaddrinfo
            return "; see that the name is spelt right (-B, OTTLA_BOOTSTRAP), and that this machine knows it: `getent hosts NAME`"
        if is_out_of_reach(error):
            waits = "a node that has started and waits for its quorum takes no clients yet: its log says so at node_waits"
            return f"; `ottla dev` starts a broker on this machine, -B or OTTLA_BOOTSTRAP names another one; {waits}"
        if error.code == ErrorCode.NETWORK_EXCEPTION and "closed by the broker before its first answer" in error.message:
            return "; --command-config names a file with it"
        if error.code == ErrorCode.INVALID_CONFIG and error.message.startswith("unknown "):
            return "; `ottla config keys` lists the keys"
        if error.code == ErrorCode.INVALID_CONFIG and error.message.startswith("logger "):
            return "; `ottla config get --broker-loggers ID` lists them"
        if error.code == ErrorCode.INVALID_UPDATE_VERSION and "request a downgrade" in error.message:
            return "; `ottla feature list` shows the levels, and --downgrade allows a lower one"
        if error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and "no broker has the id" in error.message:
            return _WAYS_OUT[ErrorCode.BROKER_NOT_AVAILABLE]
        if error.code == ErrorCode.UNSUPPORTED_VERSION and error.message.startswith("DescribeQuorum:"):
            return ": in ZooKeeper mode there is no quorum; `ottla cluster status` shows which broker is the controller"
        if error.code == ErrorCode.UNSUPPORTED_VERSION and error.message.startswith("Metadata:"):
            return _WAYS_OUT[ErrorCode.MISMATCHED_ENDPOINT_TYPE]
        right = next(iter(getattr(error, "__notes__", ())), None) or missing_right(error)
        if right is not None:
            return right
        absent = _ABSENT_TOPIC.match(error.message)
        if absent is not None:
            return f"; `ottla topic list` shows the topics, and `ottla topic create {absent[1]}` creates it"
        return _WAYS_OUT.get(error.code) or way_out_of_system(error)
    return way_out_of_system(error)


def yes_option(function: F) -> F:
    """Adds ``--yes`` for what cannot be undone."""
    return click.option("-y", "--yes", is_flag=True, help="Apply the change; without it, only the plan is printed.")(function)


def print_rows(output: str, command: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints rows under column heads, or a list of objects by column name."""
    if output == "json":
        print_json(command, [dict(zip(columns, row, strict=True)) for row in rows])
        return
    heads = [without_controls(column.upper().replace("_", "-")) for column in columns]
    table = [heads] + [[without_controls(_text(cell)) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_json(command: str, items: Sequence[Any]) -> None:
    """Prints one document; ``items`` is a list, of one item where a command is about one thing."""
    document = {"_command": command, "_version": 1, "items": items}
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    click.echo("\n".join(without_controls(line, form="\\u{:04x}") for line in text.split("\n")))


def without_controls(text: str, *, form: str | None = None) -> str:
    """Returns the text with its control characters as escapes: the text is data of others, and a terminal would obey them.

    Escapes are as in Python; ``form`` is another one, for a character's number.
    """
    if text.isprintable():
        return text

    def escaped(found: re.Match[str]) -> str:
        character = found[0]
        if form is not None:
            return form.format(ord(character))
        return character.encode("unicode_escape").decode()

    return _CONTROLS.sub(escaped, text)


def time_text(ms: int) -> str | None:
    """Returns a time as tables show it, in UTC and exact to the millisecond; None where there is none (-1)."""
    return None if ms < 0 else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, (list, tuple)):
        return ",".join(map(str, cell))
    return str(cell)
