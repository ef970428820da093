"""How commands reach brokers: ``--command-config FILE`` and ``-X KEY=VALUE``, with the keys of Kafka's clients.

One file serves all commands: a key of another kind of client is passed over, one that no client has is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from ottla.client.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
CLIENT_ID: Final = "ottla-cli"
BOOTSTRAP: Final = "bootstrap.servers"
_META: Final = "ottla.client_settings"
_COMMAND: Final = "ottla.command"


def client_options(function: F) -> F:
    """Adds both options. What they say is in the click context, and ``client_settings`` gives it."""
    file = click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False),
        envvar="OTTLA_COMMAND_CONFIG",
        show_envvar=True,
        expose_value=False,
        is_eager=True,
        callback=_note_file,
        help="A properties file of the client: security.protocol, sasl.mechanism and the like.",
    )
    override = click.option(
        "-X",
        "--client-property",
        multiple=True,
        metavar="KEY=VALUE",
        expose_value=False,
        is_eager=True,
        callback=_note_overrides,
        help="A property of the client; takes precedence over the file.",
    )
    return file(override(function))


def client_settings(*kinds: type[Settings], **own: Any) -> Any:
    """Returns the settings for a client of this command, of these kinds and the common ones; without a kind, for an admin client.

    The command's ``own`` take precedence.
    """
    import logging  # as late as the others: `ottla --help` needs none of them

    from ottla.client.options import AdminSettings, ClusterSettings
    from ottla.client.settings import checks_of
    from ottla.errors import KafkaError

    if logging.lastResort is not None:  # prints what a client warns of, where the command has no handler
        logging.lastResort.setFormatter(logging.Formatter("ottla: %(message)s"))
    every: tuple[type[Settings], ...] = (ClusterSettings, *(kinds or (AdminSettings,)))
    wanted = {name for kind in every for name in checks_of(kind)}
    given = {name: value for name, value in _given().items() if name in wanted}
    for name, check in ((name, check) for kind in every for name, check in checks_of(kind).items() if name in given and name not in own):
        try:
            check(name.replace("_", "."), given[name])
        except KafkaError as error:
            raise click.UsageError(error.message or str(error)) from None
    return {"client_id": CLIENT_ID, **given, **own}


def spark_options() -> dict[str, str]:
    """Returns what they say of every client, as the options of ``format("ottla")``."""
    from ottla.client.options import ClusterSettings
    from ottla.client.settings import checks_of

    wanted = checks_of(ClusterSettings)
    return {"kafka." + name.replace("_", "."): value for name, value in _given().items() if name in wanted}


def _given() -> dict[str, str]:
    """Returns the properties by names with ``_`` for ``.``. UsageError for a property that no client has."""
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta.get(_META, {})
    given: dict[str, str] = {**meta.get("file", meta.get("local", {})), **meta.get("overrides", {})}
    if not given:
        return {}
    from ottla.client.other_settings import KAFKAS_OWN, OTHER_SETTINGS

    given = {key: value for key, value in given.items() if value not in KAFKAS_OWN.get(key.replace(".", "_"), ())}
    from ottla.client.consumer_settings import ConsumerSettings
    from ottla.client.fetch_settings import FetchSettings
    from ottla.client.membership_settings import MembershipSettings
    from ottla.client.options import ClusterSettings
    from ottla.client.producer_settings import ProducerSettings
    from ottla.client.settings import checks_of

    every: tuple[type[Settings], ...] = (ClusterSettings, ProducerSettings, ConsumerSettings, FetchSettings, MembershipSettings)
    known = {name.replace("_", ".") for kind in every for name in checks_of(kind)}
    for key in sorted(given.keys() - known - {BOOTSTRAP}):
        if key.replace(".", "_") in OTHER_SETTINGS:
            raise click.UsageError(f"ottla's clients have no {key}: {OTHER_SETTINGS[key.replace('.', '_')]}")
        if of_others := _whose(key):
            raise click.UsageError(f"{key} is no property of a client: {of_others}")
        near = difflib.get_close_matches(key, sorted(known | {BOOTSTRAP}), n=1)
        hint = f"did you mean {near[0]}?" if near else "the names are those of Kafka's clients, as security.protocol"
        raise click.UsageError(f"unknown property of a client: {key[:100]}; {hint}")
    return {key.replace(".", "_"): value for key, value in given.items() if key != BOOTSTRAP}


def named_servers() -> str | None:
    """Returns the bootstrap servers that the properties name; None where they name none."""
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta.get(_META, {})
    servers: str | None = {**meta.get("file", {}), **meta.get("overrides", {})}.get(BOOTSTRAP)
    return servers


def _whose(key: str) -> str:
    """Returns where a property of topics or of brokers is given; empty for other names."""
    from ottla.config import BROKER_KEYS, TOPIC_KEYS

    if key in TOPIC_KEYS:
        return f"topics have it, `ottla topic create NAME -c {key}=VALUE`, `ottla config set --topic NAME {key}=VALUE`"
    if key in BROKER_KEYS:
        return f"brokers have it, `ottla config set --brokers {key}=VALUE`, or their files"
    return ""


def command_context() -> click.Context | None:
    """Returns the context of the command that asks brokers, also from a group that it is in; None where none does."""
    context = click.get_current_context(silent=True)
    found: click.Context | None = None if context is None else context.meta.get(_COMMAND)
    return found


def words_of(context: click.Context) -> str:
    """Returns the command without the name of the program, which may be several words: ``topic create``."""
    words: list[str] = []
    while context.parent is not None:
        words.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(words)


def user_of() -> str | None:
    """Returns the principal that the command logs in as, where its properties name one."""
    name, is_token = _login()
    return None if name is None or is_token else f"User:{name}"


def token_of() -> str | None:
    """Returns the id of the delegation token that the command logs in by; None where it logs in otherwise."""
    name, is_token = _login()
    return name if is_token else None


def is_of_issuer() -> bool:
    """True when the command logs in by a token of an issuer (OAUTHBEARER)."""
    return _given().get("sasl_mechanism") == "OAUTHBEARER"


def _login() -> tuple[str | None, bool]:
    """Returns the name of the login, and whether it is that of a delegation token."""
    from ottla.config.jaas import parse_jaas

    given = _given()
    if "sasl_jaas_config" not in given:
        return given.get("sasl_plain_username"), False
    login = parse_jaas(given["sasl_jaas_config"])
    return login.option("username"), login.option("tokenauth") == "true"


def principal_of() -> str | None:
    """Returns as whom brokers know the command: its user, or ANONYMOUS where it shows none. None where only the broker can say."""
    given = _given()
    protocol = given.get("security_protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT" or (protocol == "SSL" and not any(key.startswith("ssl_keystore") for key in given)):
        return "User:ANONYMOUS"
    return user_of()


def _note_file(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
    context.meta[_COMMAND] = context
    if path is None:
        return
    from ottla.config.properties import read_properties

    context.meta.setdefault(_META, {})["file"] = read_properties(path)


def note_local_file(path: str | None) -> None:
    """Takes the client properties of the cluster of this machine that the command asks; ``--command-config`` takes precedence."""
    context = click.get_current_context(silent=True)
    if path is None or context is None:
        return
    from ottla.config.properties import read_properties

    context.meta.setdefault(_META, {})["local"] = read_properties(path)


def _note_overrides(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> None:
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"-X {text}: expected KEY=VALUE")
        found[key.strip()] = value
    context.meta.setdefault(_META, {})["overrides"] = found
