"""What is in a bundle for a bug report, and what is not: secrets.

A part that fails becomes a file that says why; the others are there all the same, and so is what the other brokers say. Configuration is
shown key by key, as a broker's log may have it, and the text of every secret that the files name is replaced wherever it is.
"""

from __future__ import annotations

import http.client
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from ottla import __version__
from ottla.cli.client_settings import client_settings
from ottla.cli.local_brokers import bootstrap_default, running
from ottla.cli.node_orders import place_of
from ottla.config import find_broker_key, parse_properties
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.sync import Admin

LOG_BYTES_MAX: Final = 1 << 20
PAGE_BYTES_MAX: Final = 8 << 20
TIMEOUT_MS: Final = 5_000
PAGES: Final = ("/metrics", "/metrics/partitions", "/metrics/lag", "/readyz", "/version")
PACKAGES: Final = ("click", "cramjam", "fastcrc", "google-re2", "msgspec", "structlog", "pyspark", "kazoo")
HIDDEN: Final = b"[hidden]"
_JAAS_VALUE: Final = re.compile(r'(?:password|user_\w+)\s*=\s*"([^"]+)"')

Files = dict[str, bytes]
T = TypeVar("T")


def gather(bootstrap: str | None, data: str | None, configs: tuple[str, ...], logs: tuple[str, ...]) -> Files:
    """Returns the files by name."""
    place = place_of(data)
    found = place.read() if data is not None or bootstrap is None else None  # a cluster that is named is not the one of this machine
    nodes = [] if found is None else found.nodes
    state = running(place) if found is not None else None
    paths = {f"configuration/{index}-{os.path.basename(path)}": path for index, path in enumerate(configs)}
    paths |= {f"configuration/node-{node}.properties": place.node_file(node, "server.properties") for node in nodes}
    log_paths = {f"logs/{index}-{os.path.basename(path)}": path for index, path in enumerate(logs)}
    log_paths |= {f"logs/node-{node}.log": place.node_file(node, "node.log") for node in nodes}

    files: Files = {}
    _put(files, "versions.json", _versions)
    secrets: set[bytes] = set()
    for name, path in paths.items():
        _put(files, name, partial(_configuration, path, secrets))
    for name, path in log_paths.items():
        _put(files, name, partial(_end_of, path))
    if state is not None:
        files["processes.json"] = _json(state)
    servers = bootstrap or (state.bootstrap if state is not None else bootstrap_default())
    _put_cluster(files, servers)
    return {name: _scrubbed(content, secrets) for name, content in files.items()}


def _put(files: Files, name: str, make: Callable[[], bytes]) -> None:
    try:
        files[name] = make()
    except Exception as error:  # noqa: BLE001 - the other parts are wanted all the more
        files[f"{name}.error.txt"] = f"{type(error).__name__}: {error}\n".encode()


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2) + b"\n"


def _versions() -> bytes:
    from ottla.records.kernel import FORM

    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return _json(
        {"ottla": __version__, "record_kernel": FORM, "python": sys.version, "platform": platform.platform(), "packages": packages}
    )


def _configuration(path: str, secrets: set[bytes]) -> bytes:
    """Returns the configuration key by key; notes the texts of secrets, for which all else is searched."""
    with open(path, encoding="latin-1") as file:
        given = parse_properties(file.read())
    lines = []
    for name, value in sorted(given.items()):
        key = find_broker_key(name)
        if key is None or key.is_sensitive:  # one that is not known may hold anything
            secrets |= {value.encode(), *(found.encode() for found in _JAAS_VALUE.findall(value))}
            value = HIDDEN.decode()
        lines.append(f"{name}={value}\n")
    return "".join(lines).encode()


def _end_of(path: str) -> bytes:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_BYTES_MAX))
        return file.read(LOG_BYTES_MAX)


def _scrubbed(content: bytes, secrets: set[bytes]) -> bytes:
    """Replaces secrets. Short texts are none: they would be replaced in words that only have the same letters."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= 4:
            content = content.replace(secret, HIDDEN)
    return content


def _put_cluster(files: Files, servers: str) -> None:
    """Adds what the brokers say of themselves."""
    from ottla.cli.cluster_health import look, summary
    from ottla.cli.health_findings import findings
    from ottla.sync import Admin

    try:
        with Admin(servers, **client_settings(request_timeout_ms=TIMEOUT_MS)) as admin:
            cluster = admin.describe_cluster(include_fenced=True)
            files["cluster.json"] = _json(cluster)
            _put(files, "quorum.json", lambda: _json(admin.describe_quorum()))
            _put(files, "features.json", lambda: _json(admin.describe_features()))

            def health() -> bytes:
                seen = look(admin)
                return "\n".join([*summary(seen, list(findings(seen))), ""]).encode()

            _put(files, "health.txt", health)
            _put(files, "topics.json", lambda: _json({name: found.partitions for name, found in admin.list_topics().items()}))
            serving = sorted({node.node_id for node in cluster.nodes} - cluster.fenced)
            groups = _of_each(files, "groups.json", serving, lambda node_id: admin.list_groups([node_id]))
            files["groups.json"] = _json([group for found in groups.values() for group in found])
            directories = _of_each(
                files, "directories.json", serving, lambda node_id: admin.describe_log_dirs([node_id], with_replicas=False)[node_id]
            )
            files["directories.json"] = _json(directories)
            for node in cluster.nodes:
                _put_broker(files, admin, node.node_id, node.host)
    except Exception as error:  # noqa: BLE001 - a cluster that does not answer is what many reports are about
        files["cluster.json.error.txt"] = f"{servers}: {type(error).__name__}: {error}\n".encode()


def _of_each(files: Files, name: str, brokers: Iterable[int], ask: Callable[[int], T]) -> dict[int, T]:
    """Returns what each broker says; for one that does not answer a file of its own says why."""
    found: dict[int, T] = {}
    for node_id in brokers:
        try:
            found[node_id] = ask(node_id)
        except OttlaError as error:
            files[f"brokers/{node_id}/{name}.error.txt"] = f"{type(error).__name__}: {error}\n".encode()
    return found


def _put_broker(files: Files, admin: Admin, node_id: int, host: str) -> None:
    from ottla.sync import Broker, ConfigSource

    listener: list[str] = []

    def configuration() -> bytes:
        entries = admin.describe_configs(Broker(node_id))
        listener.append(entries["ottla.admin.listener"].value or "")
        return _json(
            {
                name: {"value": HIDDEN.decode() if _is_secret(name, entry.is_sensitive) else entry.value, "source": entry.source.name}
                for name, entry in entries.items()
                if entry.source is not ConfigSource.DEFAULT
            }
        )

    _put(files, f"brokers/{node_id}/configuration.json", configuration)
    for page in PAGES if listener and listener[0] else ():
        _put(files, f"brokers/{node_id}{page}.txt", partial(_page, listener[0], host, page))


def _is_secret(name: str, is_sensitive: bool) -> bool:
    return is_sensitive or find_broker_key(name) is None


def _page(listener: str, broker_host: str, path: str) -> bytes:
    """Returns a page of the broker's admin listener, which is on the broker's loopback where it has no host."""
    if listener.startswith("https://"):
        raise OSError(f"{listener} wants a password, which a bundle has not: fetch its pages by hand")
    host, _, port = listener.rpartition(":")
    address = {"": "127.0.0.1", "0.0.0.0": broker_host, "[::]": broker_host}.get(host, host.strip("[]"))
    connection = http.client.HTTPConnection(address, int(port), timeout=TIMEOUT_MS / 1000)
    try:
        connection.request("GET", path)
        return connection.getresponse().read(PAGE_BYTES_MAX)
    finally:
        connection.close()
