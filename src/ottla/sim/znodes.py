"""The tree of znodes: what each operation does to it, which watches it sets off, and what an ACL allows."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from ottla.coordination import (
    ANY_VERSION,
    OPEN_ACCESS,
    Access,
    BadVersionError,
    Check,
    CoordinationError,
    Create,
    Delete,
    MultiFailedError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotAuthorizedError,
    NotEmptyError,
    Operation,
    Set,
    Stat,
    Watch,
)


class Asker(Hashable, Protocol):
    """The session that asks."""

    session_id: int
    credentials: tuple[tuple[str, str], ...]


class _Node:
    __slots__ = ("acl", "children", "ctime_ms", "czxid", "data", "owner", "sequence", "version")

    def __init__(self, data: bytes, czxid: int, ctime_ms: int, owner: int, acl: tuple[Access, ...]) -> None:
        self.data = data
        self.czxid = czxid
        self.ctime_ms = ctime_ms
        self.owner = owner
        self.acl = acl
        self.version = 0
        self.sequence = 0  # how many children there ever were
        self.children: set[str] = set()

    def stat(self) -> Stat:
        return Stat(self.czxid, self.version, self.ctime_ms, self.owner, len(self.children))


Events = list[tuple[Any, Watch]]


class Tree:
    """The znodes by absolute path. A change returns the watches that it triggers: each is called once."""

    def __init__(self) -> None:
        self._nodes = {"/": _Node(b"", 0, 0, 0, OPEN_ACCESS)}
        self._zxid = 0
        self._data_watches: dict[str, list[tuple[Any, Watch]]] = defaultdict(list)
        self._child_watches: dict[str, list[tuple[Any, Watch]]] = defaultdict(list)

    def paths(self) -> dict[str, bytes]:
        """Returns every znode's data; for tests."""
        return {path: node.data for path, node in sorted(self._nodes.items())}

    def version(self, path: str) -> int:
        return self._nodes[path].version

    # -- reading

    def get(self, asker: Asker, path: str, watch: Watch | None) -> tuple[bytes, Stat]:
        node = self._node(path)
        _check_access(asker, node, "r", path)
        if watch is not None:
            self._data_watches[path].append((asker, watch))
        return node.data, node.stat()

    def exists(self, asker: Asker, path: str, watch: Watch | None) -> Stat | None:
        if watch is not None:
            self._data_watches[path].append((asker, watch))
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    def children(self, asker: Asker, path: str, watch: Watch | None) -> list[str]:
        node = self._node(path)
        _check_access(asker, node, "r", path)
        if watch is not None:
            self._child_watches[path].append((asker, watch))
        return sorted(node.children)

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    # -- writing

    def carry_out(self, asker: Asker, operations: list[Operation], path_of: Callable[[str], str], *, now_ms: int, is_multi: bool) -> Events:
        """Carries out all of the operations; an error in one of them undoes the others, and is raised."""
        self._zxid += 1
        undo: list[Callable[[], None]] = []
        touched: list[tuple[str, str]] = []
        for index, operation in enumerate(operations):
            try:
                self._do(asker, operation, path_of(operation.path), now_ms, undo, touched)
            except CoordinationError as error:
                for step in reversed(undo):
                    step()
                if is_multi:
                    raise MultiFailedError(index, error) from None
                raise
        return self._events(touched)

    def _do(
        self, asker: Asker, operation: Operation, path: str, now_ms: int, undo: list[Callable[[], None]], touched: list[tuple[str, str]]
    ) -> None:
        match operation:
            case Create():
                self._create(asker, operation, path, now_ms, undo, touched)
            case Set():
                node = self._node(path)
                _check_access(asker, node, "w", path)
                _check_version(node, operation.version, path)
                before = node.data
                undo.append(lambda: _set_back(node, before))
                node.data, node.version = operation.data, node.version + 1
                touched.append(("data", path))
            case Delete():
                self._delete(asker, operation, path, undo, touched)
            case Check():
                _check_version(self._node(path), operation.version, path)

    def _create(
        self, asker: Asker, operation: Create, path: str, now_ms: int, undo: list[Callable[[], None]], touched: list[tuple[str, str]]
    ) -> None:
        parent_path, _, name = path.rpartition("/")
        parent_path = parent_path or "/"
        parent = self._node(parent_path)
        _check_access(asker, parent, "c", parent_path)
        if parent.owner:
            raise NoChildrenForEphemeralsError(path)
        if operation.is_sequential:
            name += f"{parent.sequence:010d}"
            path = f"{parent_path.rstrip('/')}/{name}"
        if path in self._nodes:
            raise NodeExistsError(path)
        parent.sequence += 1
        owner = asker.session_id if operation.is_ephemeral else 0
        self._nodes[path] = _Node(operation.data, self._zxid, now_ms, owner, tuple(operation.acl))
        parent.children.add(name)

        def take_back() -> None:
            parent.sequence -= 1
            parent.children.discard(name)
            del self._nodes[path]

        undo.append(take_back)
        touched += [("data", path), ("children", parent_path)]

    def _delete(self, asker: Asker, operation: Delete, path: str, undo: list[Callable[[], None]], touched: list[tuple[str, str]]) -> None:
        node = self._node(path)
        parent_path, _, name = path.rpartition("/")
        parent_path = parent_path or "/"
        parent = self._node(parent_path)
        _check_access(asker, parent, "d", parent_path)
        _check_version(node, operation.version, path)
        if node.children:
            raise NotEmptyError(path)
        del self._nodes[path]
        parent.children.discard(name)

        def bring_back() -> None:
            self._nodes[path] = node
            parent.children.add(name)

        undo.append(bring_back)
        touched += [("data", path), ("own children", path), ("children", parent_path)]

    def _events(self, touched: list[tuple[str, str]]) -> Events:
        events: Events = []
        for kind, path in touched:
            watches = self._data_watches if kind == "data" else self._child_watches
            events += watches.pop(path, [])
        return events

    def end_session(self, session_id: int) -> Events:
        """Deletes the session's ephemeral znodes."""
        touched: list[tuple[str, str]] = []
        self._zxid += 1
        for path in [path for path, node in self._nodes.items() if node.owner == session_id]:
            parent, _, name = path.rpartition("/")
            del self._nodes[path]
            self._nodes[parent or "/"].children.discard(name)
            touched += [("data", path), ("own children", path), ("children", parent or "/")]
        return self._events(touched)

    def forget(self, asker: Asker) -> None:
        """Removes the session's watches."""
        for watches in (self._data_watches, self._child_watches):
            for path in list(watches):
                watches[path] = [(owner, watch) for owner, watch in watches[path] if owner is not asker]


def _set_back(node: _Node, data: bytes) -> None:
    node.data, node.version = data, node.version - 1


def _check_version(node: _Node, version: int, path: str) -> None:
    if version not in (ANY_VERSION, node.version):
        raise BadVersionError(path)


def _check_access(asker: Asker, node: _Node, letter: str, path: str) -> None:
    known = {("world", "anyone"), *(("digest", digest(secret)) for scheme, secret in asker.credentials if scheme == "digest")}
    if not any((access.scheme, access.id) in known and letter in access.permissions for access in node.acl):
        raise NotAuthorizedError(path)


def digest(secret: str) -> str:
    """Returns ``user:password`` as it is in an ACL."""
    user = secret.partition(":")[0]
    return f"{user}:{base64.b64encode(hashlib.sha1(secret.encode()).digest()).decode()}"
