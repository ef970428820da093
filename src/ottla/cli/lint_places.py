"""The files and directories that a server.properties names, as ``ottla config lint`` sees them: what a start would refuse.

A file may well be that of a node elsewhere. It is of this machine where one of its log directories is here and formatted; only there a
store that cannot be read is an error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.broker.requests.listener_security import STORE_BYTES_MAX, get_of
from ottla.broker.requests.listeners import all_used
from ottla.config import BrokerConfig
from ottla.config.lint import Finding, Severity
from ottla.errors import DecodeError, KafkaError
from ottla.ports import World
from ottla.security.tls_settings import Get, paths_of, server_of

STORES: Final = ("ssl.keystore.location", "ssl.truststore.location")
_MAY_USE: Final = os.R_OK | os.W_OK | os.X_OK


def places(config: BrokerConfig, world: World) -> Iterator[Finding]:
    """Yields stores that cannot be read or serve no listener, and log directories that the one who looks may not use."""
    directories: list[str] = [] if not config["metadata.log.dir"] else [config["metadata.log.dir"]]
    with contextlib.suppress(KafkaError):  # none is given: a start takes one of the user's
        directories += config.replica_dirs
    is_here = any(os.path.exists(os.path.join(path, "meta.properties")) for path in directories)
    yield from _stores(config, world, is_here=is_here)
    for path in dict.fromkeys(directories):
        yield from _directory(config, path)


def _stores(config: BrokerConfig, world: World, *, is_here: bool) -> Iterator[Finding]:
    for listener, protocol in all_used(config).items():
        if not protocol.has_tls:
            continue
        get = get_of(config, listener, protocol)
        files: dict[str, bytes] = {}
        unread = []
        for path in paths_of(get):
            try:
                with open(path, "rb") as store:
                    files[path] = store.read(STORE_BYTES_MAX)
            except (OSError, ValueError) as error:
                unread.append((path, getattr(error, "strerror", None) or str(error)))
        for path, why in unread:
            severity, here = (Severity.ERROR, "") if is_here else (Severity.WARNING, " here")
            end = "" if is_here else "; the node does not start where that is so"
            yield Finding(_key(config, listener, path), severity, f"listener {listener}: the store {path} cannot be read{here}: {why}{end}")
        if not unread:
            yield from _of_server(config, world, listener, get, files)


def _of_server(config: BrokerConfig, world: World, listener: str, get: Get, files: Mapping[str, bytes]) -> Iterator[Finding]:
    """Yields why the listener cannot be served with what was read."""
    try:
        world.network.check_tls(server_of(get, files))
    except (KafkaError, DecodeError, ValueError, OSError) as error:
        text = error.message if isinstance(error, KafkaError) else str(error)
        named = next((path for path in files if path in text), next(iter(files), ""))
        yield Finding(_key(config, listener, named), Severity.ERROR, f"listener {listener}: {text}")


def _key(config: BrokerConfig, listener: str, path: str) -> str:
    """Returns the key of the file that names the store; that of the key store where none does."""
    names = [f"listener.name.{listener.lower()}.{name}" for name in STORES] + list(STORES)
    return next((name for name in names if path and config.given.get(name) == path), STORES[0])


def _directory(config: BrokerConfig, path: str) -> Iterator[Finding]:
    """Yields why the directory cannot be used, or made: as whom, where it may be another user's."""
    found = os.path.abspath(path)
    while not os.path.lexists(found) and os.path.dirname(found) != found:
        found = os.path.dirname(found)
    name = next((key for key in ("log.dirs", "log.dir", "metadata.log.dir") if path in str(config.given.get(key, ""))), "log.dirs")
    if os.path.exists(found) and not os.path.isdir(found):
        yield Finding(name, Severity.ERROR, f"{path}: {found} is not a directory")
    elif found == os.path.abspath(path) and not os.access(found, _MAY_USE):
        owner, user = os.stat(found).st_uid, os.geteuid()
        if owner == user:
            yield Finding(name, Severity.ERROR, f"{path}: its owner may not read and write it (`ls -ld {path}`): the node does not start")
        else:
            text = f"{path}: the user of this command may not read and write it: look as the user of the node, who needs both"
            yield Finding(name, Severity.WARNING, text)
