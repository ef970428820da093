"""``ottla config``: get, set, diff, keys, explain, lint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.config_lint import lint
from ottla.cli.names import BROKERS, GROUPS, TOPICS, complete_explained, complete_key, complete_pair
from ottla.cli.output import bootstrap_option, complain, format_option, print_rows
from ottla.cli.partition_states import MIN_ISR, min_isr_beyond, topics_beyond
from ottla.cli.units import without_unit
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.admin import ConfigEntry
    from ottla.client.admin.resources import ConfigChange, ConfigChanges, ConfigResource, ConfigSource
    from ottla.config import BrokerConfig, ConfigKey

SOURCES = ("", "topic", "broker", "all brokers", "file", "default", "logger", "subscription", "group")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@click.group()
def config() -> None:
    """Manage the configuration of topics, brokers, groups and client metrics."""


config.add_command(lint)


def resource_options(function: F) -> F:
    """Adds ``--topic``, ``--broker``, ``--brokers``, ``--broker-loggers``, ``--group`` and ``--client-metrics``."""
    for option in (
        click.option("--client-metrics", metavar="NAME", help="A subscription to clients' metrics."),
        click.option("--group", metavar="NAME", shell_complete=GROUPS, help="A consumer group."),
        click.option(
            "--broker-loggers", metavar="ID", shell_complete=BROKERS, help="The log levels of one broker, by logger, until it is restarted."
        ),
        click.option("--brokers", is_flag=True, help="What is set for all brokers."),
        click.option("--broker", metavar="ID", shell_complete=BROKERS, help="One broker."),
        click.option("--topic", metavar="NAME", shell_complete=TOPICS, help="A topic."),
    ):
        function = option(function)
    return function


def resource_of(
    topic: str | None, broker: str | None, brokers: bool, broker_loggers: str | None, group: str | None, client_metrics: str | None
) -> ConfigResource:
    """Returns the resource that the options name."""
    from ottla.sync import Broker, BrokerLoggers, ClientMetrics, Group, Topic

    for option, node_id in (("--broker", broker), ("--broker-loggers", broker_loggers)):
        if node_id is not None and not node_id.isdecimal():
            raise click.UsageError(f"{option} {node_id}: expected the id of a broker")
    found: list[ConfigResource] = [] if topic is None else [Topic(topic)]
    found += [] if broker is None else [Broker(int(broker))]
    found += [Broker()] if brokers else []
    found += [] if broker_loggers is None else [BrokerLoggers(int(broker_loggers))]
    found += [] if group is None else [Group(group)]
    found += [] if client_metrics is None else [ClientMetrics(client_metrics)]
    if len(found) != 1:
        raise click.UsageError("name one of --topic, --broker, --brokers, --broker-loggers, --group and --client-metrics")
    return found[0]


@config.command()
@click.argument("keys", nargs=-1, shell_complete=complete_key)
@click.option("--all", "everything", is_flag=True, help="Also values that are not set anywhere.")
@resource_options
@bootstrap_option
@format_option
def get(keys: tuple[str, ...], everything: bool, bootstrap: str, output: str, **resource: Any) -> None:
    """Print the values of KEYS, or all that are set, and their sources."""
    from ottla.sync import BrokerLoggers, ConfigSource

    _refuse_bare_resource("get", keys)
    target = resource_of(**resource)
    entries = [
        entry
        for entry in _described(bootstrap, target)
        if (entry.name in keys if keys else everything or entry.source is not ConfigSource.DEFAULT)
    ]
    missing = set(keys) - {entry.name for entry in entries}
    if missing and isinstance(target, BrokerLoggers):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"logger {min(missing)} does not exist")
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"unknown key {min(missing)}; `ottla config explain {min(missing)}` suggests similar keys"
        )
    rows = [(entry.name, _shown(entry), SOURCES[entry.source], not entry.is_read_only) for entry in entries]
    print_rows(output, "config get", ("name", "value", "source", "can_change"), rows)


@config.command("set")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=complete_pair)
@click.option(
    "-d",
    "--delete",
    "deleted",
    multiple=True,
    metavar="KEY",
    shell_complete=complete_key,
    help="Remove the value, so that the next level or the default applies.",
)
@click.option("-a", "--append", "appended", multiple=True, metavar="KEY=VALUE", shell_complete=complete_pair, help="Append to a list.")
@click.option(
    "-s", "--subtract", "subtracted", multiple=True, metavar="KEY=VALUE", shell_complete=complete_pair, help="Remove from a list."
)
@click.option("--dry-run", is_flag=True, help="Only validate, and print old and new values; change nothing.")
@click.option("--force", is_flag=True, help="Also store keys of brokers that ottla does not know: those of plug-ins.")
@resource_options
@bootstrap_option
@format_option
def set_values(
    pairs: tuple[str, ...],
    deleted: tuple[str, ...],
    appended: tuple[str, ...],
    subtracted: tuple[str, ...],
    dry_run: bool,
    force: bool,
    bootstrap: str,
    output: str,
    **resource: Any,
) -> None:
    """Change values: all of them, or none. Numbers may have a unit: retention.ms=7d, segment.bytes=64MiB."""
    from ottla.config import BROKER_KEYS, find_broker_key, nearest
    from ottla.sync import Append, Broker, Subtract

    _refuse_bare_resource("set", pairs)
    asked: list[tuple[str, str | Append | Subtract | None]] = [(key, None) for key in deleted]
    asked += map(config_of, pairs)
    asked += [(key, Append(item)) for key, item in map(key_and_value, appended)]
    asked += [(key, Subtract(item)) for key, item in map(key_and_value, subtracted)]
    changes = once(asked)
    if not changes:
        raise click.UsageError("nothing to change; try KEY=VALUE")
    target = resource_of(**resource)
    for key in [key for key, change in changes.items() if change is not None] if isinstance(target, Broker) and not force else ():
        if find_broker_key(key) is None:  # a broker keeps what it does not know, as Kafka does
            hint = nearest(key, BROKER_KEYS)
            unknown = f"{key} is not a broker key" + (f"; did you mean {hint}?" if hint else "; `ottla config keys` lists them;")
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{unknown} --force stores it all the same, for a plug-in that knows it")
    change_values(bootstrap, target, changes, dry_run=dry_run, output=output, command="config set")


@config.command()
@resource_options
@bootstrap_option
@format_option
def diff(bootstrap: str, output: str, **resource: Any) -> None:
    """Print the values that differ from the default, with the default."""
    from ottla.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS
    from ottla.sync import BrokerLoggers, ClientMetrics, ConfigSource, Group, Topic

    rows = []
    target = resource_of(**resource)
    if isinstance(target, BrokerLoggers):
        raise click.UsageError("loggers have no defaults of their own; `ottla config get --broker-loggers ID` shows their levels")
    tables: dict[type[Any], Mapping[str, ConfigKey]] = {Topic: TOPIC_KEYS, Group: GROUP_KEYS, ClientMetrics: CLIENT_METRICS_KEYS}
    keys = tables.get(type(target), BROKER_KEYS)
    for entry in _described(bootstrap, target):
        default = _default_of(entry, keys)
        if entry.source is not ConfigSource.DEFAULT and (entry.is_sensitive or entry.value != default):
            rows.append((entry.name, _shown(entry), default, SOURCES[entry.source]))
    print_rows(output, "config diff", ("name", "value", "default", "source"), rows)


@config.command()
@click.argument("key", shell_complete=complete_explained)
@format_option
def explain(key: str, output: str) -> None:
    """Explain KEY: meaning, type, default, bounds, effect.

    "changed" says how it is changed.

    The default is the value in force where nothing is set, also where another key has it.
    """
    from ottla.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, BrokerConfig, Scope, find_broker_key, nearest

    tables = (("broker", BROKER_KEYS), ("topic", TOPIC_KEYS), ("group", GROUP_KEYS), ("client metrics", CLIENT_METRICS_KEYS))
    rows = []
    defaults = BrokerConfig()
    for resource, keys in tables:
        found = find_broker_key(key) if resource == "broker" else keys.get(key)
        if found is not None:
            needs_restart = resource == "broker" and found.scope is Scope.READ_ONLY
            changed = "restart" if needs_restart else found.scope.value if resource == "broker" else "at once"
            bounds = ",".join(found.choices) if found.choices else _bounds(found.low, found.high)
            effect = "yes" if found.without_effect is None else f"no: it {found.without_effect}"
            rows.append((resource, found.type.name.lower(), in_force(found, defaults), bounds, changed, effect, found.doc))
    if not rows:
        hint = nearest(key, {name: known for _, keys in tables for name, known in keys.items()})
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown key {key}" + (f"; did you mean {hint}?" if hint else ""))
    print_rows(output, "config explain", ("resource", "type", "default", "bounds", "changed", "effect", "meaning"), rows)


def in_force(key: ConfigKey, defaults: BrokerConfig) -> str | None:
    """Returns what holds where nothing is set: the default of another key, where the key has none of its own."""
    from ottla.config import BROKER_KEYS

    value = key.default
    if key.broker_key:
        value = defaults.topic_default(key)
    elif value is None and key.name in BROKER_KEYS:
        value = defaults[key.name]
    return key.format(value)


@config.command("keys")
@click.argument("word", default="")
@click.option("--resource", type=click.Choice(["broker", "topic", "group", "client metrics"]), help="Only keys of these.")
@format_option
def list_keys(word: str, resource: str | None, output: str) -> None:
    """List the keys with WORD in the name or the meaning.

    `ottla config explain KEY` says more.
    """
    from ottla.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, BrokerConfig

    defaults = BrokerConfig()
    tables = (("broker", BROKER_KEYS), ("topic", TOPIC_KEYS), ("group", GROUP_KEYS), ("client metrics", CLIENT_METRICS_KEYS))
    rows = [
        (name, kind, key.type.name.lower(), in_force(key, defaults), key.without_effect is None, key.doc)
        for kind, keys in tables
        for name, key in sorted(keys.items())
        if resource in (None, kind) and (word.lower() in name.lower() or word.lower() in key.doc.lower())
    ]
    if not rows:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"no key has {word!r} in its name or its meaning")
    print_rows(output, "config keys", ("name", "resource", "type", "default", "has_effect", "meaning"), rows)


def _refuse_bare_resource(command: str, words: tuple[str, ...]) -> None:
    """Raises UsageError where the resource is an argument: ``config get topic orders``."""
    kind = words[0].lower().removesuffix("s") if words else ""
    if kind in ("topic", "broker", "group"):
        name = words[1] if len(words) > 1 else "NAME"
        rest = "".join(f" {word}" for word in words[2:])
        raise click.UsageError(f"{words[0]} is an option: `ottla config {command}{rest} --{kind} {name}`")


def key_and_value(text: str) -> tuple[str, str]:
    """Splits ``KEY=VALUE``."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.UsageError(f"{text}: expected KEY=VALUE")
    return key, value


def config_of(text: str) -> tuple[str, str]:
    """Splits ``KEY=VALUE`` of a configuration or a quota, whose number may have a unit."""
    key, value = key_and_value(text)
    return key, without_unit(key, value)


def once(pairs: Iterable[tuple[str, T]], what: str = "a key is changed") -> dict[str, T]:
    """Returns the pairs as a mapping. UsageError where one is given twice: which of the two is meant is not known."""
    found: dict[str, T] = {}
    for key, value in pairs:
        if key in found:
            raise click.UsageError(f"{what} once by one command: {key} is given twice")
        found[key] = value
    return found


def change_values(bootstrap: str, resource: ConfigResource, changes: ConfigChanges, *, dry_run: bool, output: str, command: str) -> None:
    """Changes all of these values, or none; with ``dry_run`` prints the old and the new value of each."""
    from ottla.sync import Admin, Broker, Topic

    with Admin(bootstrap, **client_settings()) as admin:
        admin.alter_configs({resource: changes}, validate_only=dry_run)
        new, warning = changes.get(MIN_ISR), None
        if isinstance(resource, Topic) and isinstance(new, str):
            warning = min_isr_beyond(admin, resource.name, new)
        elif isinstance(resource, Broker) and isinstance(new, str) and not dry_run:
            warning = topics_beyond(admin)
        if warning is not None:
            complain(warning)
        if not dry_run:
            report_changes(output, command, changes, "changed")
            click.echo(f"changed {', '.join(changes)}", err=True)
            return
        before = admin.describe_configs(resource)
    report_changes(output, command, changes, "possible")
    for key, change in changes.items():
        entry = before.get(key)
        old, new = ("nothing", change) if entry is None else (_shown(entry), _changed(entry, change, _own_source(resource)))
        click.echo(f"would change {key} from {old} to {new}", err=True)


def report_changes(output: str, command: str, names: Iterable[str], result: str) -> None:
    """Prints one item for each name where programs read; people read standard error."""
    if output == "json":
        print_rows(output, command, ("name", "result", "error"), [(name, result, None) for name in names])


def _changed(entry: ConfigEntry, change: ConfigChange, own: ConfigSource) -> ConfigChange:
    """Returns what a key has after the change; without a value of its own, what the next level has."""
    from ottla.sync import Append, Subtract

    items = [item for item in (entry.value or "").split(",") if item]
    match change:
        case _ if entry.is_sensitive:
            return "[hidden]"
        case None:
            wider = [synonym.value for synonym in entry.synonyms if synonym.source is not own]
            return wider[0] if wider else "its default"
        case Append(item):
            return ",".join(items if item in items else [*items, item])
        case Subtract(item):
            return ",".join(each for each in items if each != item)
    return change


def _own_source(resource: ConfigResource) -> ConfigSource:
    """Returns the source of values that are set for the resource itself."""
    from ottla.sync import Broker, ClientMetrics, ConfigSource, Group

    match resource:
        case Broker(node_id):
            return ConfigSource.ALL_BROKERS if node_id is None else ConfigSource.BROKER
        case Group():
            return ConfigSource.GROUP
        case ClientMetrics():
            return ConfigSource.CLIENT_METRICS
    return ConfigSource.TOPIC


def _described(bootstrap: str, resource: ConfigResource) -> list[ConfigEntry]:
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        return list(admin.describe_configs(resource).values())


def _default_of(entry: ConfigEntry, keys: Mapping[str, ConfigKey]) -> str | None:
    """Returns the broker's answer, if it has one for this key; a coarser key (hours for milliseconds) says nothing."""
    key = keys.get(entry.name)
    names = {entry.name, key and key.broker_key}
    from ottla.sync import ConfigSource

    values: list[str | None] = [
        synonym.value for synonym in entry.synonyms if synonym.source is ConfigSource.DEFAULT and synonym.name in names
    ]
    if values:
        return values[0]
    return None if key is None else key.format(key.default)


def _shown(entry: ConfigEntry) -> str | None:
    return "[hidden]" if entry.is_sensitive else entry.value


def _bounds(low: float | None, high: float | None) -> str | None:
    if low is None and high is None:
        return None
    return f"{'' if low is None else low} .. {'' if high is None else high}".strip()
