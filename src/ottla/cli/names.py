"""Names that a shell completes: topics, groups and brokers of the cluster that the command is about, and keys of topics.

The cluster is asked while a person waits for a key to have an effect: nothing is completed where it does not answer at once.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from ottla.cli.client_settings import client_settings
from ottla.cli.local_brokers import bootstrap_default

if TYPE_CHECKING:
    from ottla.aio import Admin
    from ottla.config import ConfigKey

SECONDS_MAX: Final = 1.5
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completer(ask: Callable[[Admin], Awaitable[Iterable[str]]]) -> Completer:
    def complete(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
        import asyncio

        from ottla.aio import Admin

        async def names() -> Iterable[str]:
            servers = context.params.get("bootstrap") or os.environ.get("OTTLA_BOOTSTRAP") or bootstrap_default()
            async with asyncio.timeout(SECONDS_MAX), Admin(servers, **client_settings()) as admin:
                return await ask(admin)

        try:
            found = asyncio.run(names())
        except Exception:  # noqa: BLE001 - a shell shows no errors while it completes
            return []
        return [CompletionItem(name) for name in sorted(found) if name.startswith(begun)]

    return complete


async def _topics(admin: Admin) -> Iterable[str]:
    return [name for name, topic in (await admin.list_topics()).items() if not topic.is_internal]


async def _groups(admin: Admin) -> Iterable[str]:
    return [group.group_id for group in await admin.list_groups()]


async def _brokers(admin: Admin) -> Iterable[str]:
    return [str(node.node_id) for node in (await admin.describe_cluster(include_fenced=True)).nodes]


TOPICS: Final = _completer(_topics)
GROUPS: Final = _completer(_groups)
BROKERS: Final = _completer(_brokers)


def _keys_of(context: click.Context) -> list[ConfigKey]:
    """Returns the keys, by name, of what the command changes: a topic, unless its options say otherwise."""
    from ottla.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS

    given = context.params
    keys = GROUP_KEYS if given.get("group") else CLIENT_METRICS_KEYS if given.get("client_metrics") else TOPIC_KEYS
    if given.get("brokers") or given.get("broker"):
        keys = {name: key for name, key in BROKER_KEYS.items() if key.is_dynamic}
    return [key for _, key in sorted(keys.items()) if not key.is_internal]


def complete_key(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Completes ``KEY``."""
    return [CompletionItem(key.name, help=key.doc) for key in _keys_of(context) if key.name.startswith(begun)]


def complete_pair(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Completes ``KEY=VALUE``: the key first, then the values that it may have, or its default where they are not counted."""
    name, separator, value = begun.partition("=")
    if not separator:
        return [CompletionItem(f"{key.name}=", help=key.doc) for key in _keys_of(context) if key.name.startswith(name)]
    found = [text for key in _keys_of(context) if key.name == name for text in _values_of(key)]
    return [CompletionItem(f"{name}={text}") for text in found if text.startswith(value)]


def _values_of(key: ConfigKey) -> list[str]:
    from ottla.config import ConfigType

    if key.type is ConfigType.BOOLEAN:
        return ["true", "false"]
    if key.choices is not None:
        return list(key.choices)
    return [] if key.default is None or isinstance(key.default, list | tuple) else [str(key.default)]


def complete_explained(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Completes a key of anything: what ``ottla config explain`` takes."""
    from ottla.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS

    keys = {**CLIENT_METRICS_KEYS, **GROUP_KEYS, **BROKER_KEYS, **TOPIC_KEYS}
    return [CompletionItem(name, help=key.doc) for name, key in sorted(keys.items()) if name.startswith(begun) and not key.is_internal]


def complete_feature(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Completes ``FEATURE=LEVEL``: the feature first, then the levels that this ottla supports."""
    from ottla.controller.features import FEATURES

    name, separator, level = begun.partition("=")
    if not separator:
        return [CompletionItem(f"{each}=") for each in FEATURES if each.startswith(name)]
    levels = FEATURES.get(name)
    texts = () if levels is None else map(str, range(levels[0], levels[1] + 1))
    return [CompletionItem(f"{name}={text}") for text in texts if text.startswith(level)]


def _one_of(*texts: str) -> Completer:
    """Returns what completes one of these texts."""
    return lambda _, __, begun: [CompletionItem(text) for text in texts if text.startswith(begun)]


OFFSETS: Final = _one_of("start", "end", ":end", "@-1h", "@-1d", "@now")
PLACES: Final = _one_of("start", "end", "@-1h", "@-1d", "@now")
