"""The directory of the nodes of one machine.

    cluster.json   what the cluster is: its id, its nodes, its voters, their ports; kept between runs
    state.json     who runs now: the supervisor and the nodes, with their process ids; rewritten at each change
    .lock          locked by the supervisor for as long as it lives: the kernel unlocks it, whatever ends it
    control.sock   where the supervisor takes orders (``ottla.runtime.supervision.control``)
    security/      of ``--secure``: the authority, the certificate, what nodes share, and the properties of the user ``admin``
    zookeeper/     what the cluster's own ZooKeeper has, where there is one (``--zookeeper own``)
    node-N/        the node's log directory ``data``, its ``server.properties`` and its ``node.log``

Of ``ottla broker start --cores`` the place is the first entry of log.dirs, and ``node-N`` below each entry is a log directory.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ottla.errors import OttlaError

CLUSTER_FILE: Final = "cluster.json"
STATE_FILE: Final = "state.json"
LOCK_FILE: Final = ".lock"
VERSION: Final = 1
ORPHANS_SECONDS_MAX: Final = 30.0
_POLL_SECONDS: Final = 0.05
SECURITY: Final = "security"
CLIENT_FILE: Final = "client.properties"
SHARED_FILE: Final = "nodes.properties"
_HARMLESS: Final = frozenset({LOCK_FILE, "lost+found", SECURITY})


class PlaceError(OttlaError):
    """The directory cannot be used; the text says why, and the way out."""


class ClusterFile(msgspec.Struct):
    """The file about a cluster. ``formatted`` are the nodes whose log directories were made: one that is empty later has lost its votes."""

    kind: Literal["cluster", "cores"]
    cluster_id: str
    nodes: list[int]
    voters: list[int]
    formatted: list[int] = []
    ports: dict[int, int] = {}  # of the kind "cluster", as are the two below
    controller_ports: dict[int, int] = {}
    properties: dict[str, str] = {}
    is_secured: bool = False
    """Over SASL_SSL, with users and ACLs (``--secure``)."""
    removed: list[int] = []
    """Nodes that have left for good: their directories may still be there, and their ids are not given again."""
    zookeeper: str | None = None
    """The home of a cluster in ZooKeeper mode: host:port/chroot. None for a quorum."""
    zookeeper_port: int | None = None
    """That of the ZooKeeper that the supervisor runs beside the nodes."""
    version: int = VERSION


class NodeStatus(msgspec.Struct):
    node_id: int
    roles: list[str]
    state: str
    pid: int | None
    address: str | None
    controller_address: str | None
    log: str | None


class PlaceState(msgspec.Struct):
    """The nodes that run, as the supervisor knows them."""

    cluster_id: str
    supervisor_pid: int
    bootstrap: str
    nodes: list[NodeStatus]
    home: str = "quorum"
    command_config: str | None = None  # the properties by which clients reach a secured cluster
    version: int = VERSION


class Place:
    """The directory of one machine's nodes, which exists once it is locked."""

    def __init__(self, path: str) -> None:
        self.path: Final = os.path.abspath(path)
        self._lock: int | None = None

    def lock(self) -> None:
        """Locks the directory until this process ends. PlaceError when another one has it, or something else is in the directory."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        descriptor = os.open(self._file(LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise PlaceError(self._occupied()) from None
        self._lock = descriptor

    def _occupied(self) -> str:
        state = self.state()
        if state is None:
            return f"{self.path} is in use by a broker; stop it, or choose another directory"
        text = f"the cluster in {self.path} already runs (supervisor {state.supervisor_pid}, {len(state.nodes)} nodes, {state.bootstrap})"
        return f"{text}; `ottla cluster stop {self.option}` stops it, --data DIR starts another one"

    @property
    def _is_another_ones(self) -> bool:
        """True where the locked directory was deleted, and another supervisor has made one of its path, with a state and a socket."""
        try:
            there = os.stat(self._file(LOCK_FILE))
        except FileNotFoundError:
            return False
        return self._lock is not None and not os.path.samestat(there, os.fstat(self._lock))

    @property
    def option(self) -> str:
        """How a command for a shell names the place."""
        return f"--data {shlex.quote(self.path)}"

    @property
    def foreign_entries(self) -> list[str]:
        """What is in the directory, if it is no cluster's yet."""
        return sorted(name for name in os.listdir(self.path) if name not in _HARMLESS)

    def read(self) -> ClusterFile | None:
        """Returns the cluster's description; None where there is none. PlaceError when the file is damaged."""
        try:
            with open(self._file(CLUSTER_FILE), "rb") as file:
                found = msgspec.json.decode(file.read(), type=ClusterFile)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except msgspec.MsgspecError as error:
            raise PlaceError(f"{self._file(CLUSTER_FILE)} is damaged: {error}; nothing was changed") from None
        if found.version != VERSION:
            raise PlaceError(f"{self._file(CLUSTER_FILE)} has version {found.version}; this ottla reads version {VERSION}")
        return found

    def write(self, cluster: ClusterFile) -> None:
        self._write(CLUSTER_FILE, msgspec.json.format(msgspec.json.encode(cluster), indent=2) + b"\n")

    def state(self) -> PlaceState | None:
        """Returns which nodes ran when the file was written; whether they still do, only the supervisor knows."""
        try:
            with open(self._file(STATE_FILE), "rb") as file:
                return msgspec.json.decode(file.read(), type=PlaceState)
        except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
            return None

    def write_state(self, state: PlaceState) -> None:
        """Writes the state, not durably: after the end of the machine nothing of it is true."""
        if self._is_another_ones:
            return
        self._write(STATE_FILE, msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n", is_durable=False)

    def write_properties(self, node_id: int, properties: Mapping[str, str]) -> None:
        """Writes a node's properties, for people and for ``ottla broker start FILE``, again at each start."""
        lines = ["# Written by `ottla cluster start` at each start: change a key by its option -X KEY=VALUE."]
        lines += [f"{key}={value}" for key, value in properties.items()]
        name, text = os.path.join(f"node-{node_id}", "server.properties"), "\n".join([*lines, ""])
        self._write(name, text.encode("latin-1", "backslashreplace"), mode=0o600)

    def remove_state(self) -> None:
        """Removes the state, since nothing runs from now on."""
        if self._is_another_ones:
            return
        for name in (STATE_FILE, "control.sock"):
            try:
                os.unlink(self._file(name))
            except FileNotFoundError:
                continue

    @property
    def security(self) -> str:
        """Where a secured cluster has its certificate and its users' files."""
        return self._file(SECURITY)

    @property
    def client_file(self) -> str:
        """The properties by which commands are the user of a secured cluster."""
        return os.path.join(self.security, CLIENT_FILE)

    @property
    def shared_file(self) -> str:
        """What the nodes of a secured cluster share, written again at each start."""
        return os.path.join(self.security, SHARED_FILE)

    def directory_of(self, node_id: int) -> str:
        """Returns where the node's files are."""
        return self._file(f"node-{node_id}")

    def node_file(self, node_id: int, name: str) -> str:
        return os.path.join(self.directory_of(node_id), name)

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _write(self, name: str, data: bytes, *, is_durable: bool = True, mode: int = 0o644) -> None:
        """Replaces the file: a reader finds the old content or the new one, and so does the next start after a crash if it is durable."""
        path = self._file(name)
        temporary = f"{path}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            file.write(data)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)


def wait_until_free(log_dirs: list[str]) -> bool:
    """Waits until no broker has these log directories. False when one still does after ``ORPHANS_SECONDS_MAX``.

    Nodes whose supervisor was killed need a moment for their stop.
    """
    deadline = time.monotonic() + ORPHANS_SECONDS_MAX
    while any(map(_is_locked, log_dirs)):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _is_locked(log_dir: str) -> bool:
    try:
        descriptor = os.open(os.path.join(log_dir, LOCK_FILE), os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def default_data_directory(environ: Mapping[str, str]) -> str:
    """Returns a path in the user's data directory, because the system empties the temporary one."""
    home = environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(home, "ottla", "data")


def default_place(data_home: str) -> str:
    """Returns a path beside the data of a lone broker, in the user's data directory."""
    return os.path.join(os.path.dirname(data_home), "cluster")
