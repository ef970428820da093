"""Who may import whom: every module of src is checked against the table of [tool.ottla] in pyproject.toml.

Imports are read from the source, so that those inside functions and under TYPE_CHECKING count like any other.
"""

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.import_circles import circles, rooms_of

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
ABOVE_THE_TABLE = frozenset({"__main__"})  # modules beside the packages that may import any of them


@dataclass(frozen=True)
class Contract:
    layers: list[list[str]]  # from the top down
    outside_modules: frozenset[str]
    loop_modules: frozenset[str]

    @classmethod
    def read(cls, pyproject: Path) -> "Contract":
        table = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["ottla"]
        return cls(table["layers"], frozenset(table["outside_modules"]), frozenset(table["loop_modules"]))

    def height_of(self, package: str) -> int:
        """0 is the ground; the package must be in the table."""
        return next(height for height, names in enumerate(reversed(self.layers)) if package in names)

    def knows(self, package: str) -> bool:
        return any(package in names for names in self.layers)

    def violations(self, module: str, source: str, *, is_package: bool = False) -> list[str]:
        """What this module (a dotted name) imports against the contract, one sentence each."""
        importer = package_of(module)
        if importer is None or importer in ABOVE_THE_TABLE:
            return []
        if not self.knows(importer):
            return [f"{module}: the package {importer} has no place in [tool.ottla] layers"]
        return [
            f"{module}:{line}: {reason}"
            for line, imported in imports(module, source, is_package=is_package)
            if (reason := self._objection(importer, imported)) is not None
        ]

    def _objection(self, importer: str, imported: str) -> str | None:
        top = imported.partition(".")[0]
        shell = self.height_of("broker")
        if top in ("ottla", "pyspark_ottla"):
            target = package_of(imported)
            if top == "pyspark_ottla":
                return "nothing imports pyspark_ottla, the door for Spark alone"
            if target is None or target == importer:
                return None
            if not self.knows(target):
                return f"imports {imported}, which has no place in [tool.ottla] layers"
            if self.height_of(target) < self.height_of(importer):
                return None
            return f"{importer} may not import {target}: {'same line' if self._same_line(importer, target) else 'it lies above'}"
        if top in self.outside_modules and self.height_of(importer) <= shell:
            return f"{importer} may not import {top}: the outside world is reached through ports"
        if top in self.loop_modules and self.height_of(importer) < shell:
            return f"{importer} may not import {top}: below broker and client nothing runs on a loop"
        if self.height_of(importer) == 0 and top not in sys.stdlib_module_names:
            return f"{importer} may not import {top}: the ground imports the standard library only"
        return None

    def _same_line(self, one: str, other: str) -> bool:
        return self.height_of(one) == self.height_of(other)


def package_of(module: str) -> str | None:
    """The name that the table knows: wire for ottla.wire.schema; None for ottla itself and for what is not under it."""
    parts = module.split(".")
    return parts[1] if parts[0] == "ottla" and len(parts) > 1 else None


@functools.cache
def imports(module: str, source: str, *, is_package: bool) -> list[tuple[int, str]]:
    """(line, dotted name) of everything that the source imports, anywhere in it; relative names are resolved."""
    return list(_imports(module, source, is_package=is_package))


def _imports(module: str, source: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                prefix = absolute(module, base, level, is_package=is_package)
                # "from ottla import aio" imports a submodule, "from ottla import __version__" a name.
                is_top = prefix == "ottla"
                yield from ((node.lineno, f"ottla.{a.name}" if is_top and is_module(a.name) else prefix) for a in names)
            case ast.Call(func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield node.lineno, name


def is_module(name: str) -> bool:
    """Names that the package itself offers are written with underscores; whatever else it is asked for is one of its modules."""
    return not name.startswith("__")


def absolute(module: str, base: str | None, level: int, *, is_package: bool) -> str:
    if level == 0:
        assert base is not None, "only a relative import names no module"
        return base
    parts = module.split(".")
    parent = parts[: len(parts) - level + (1 if is_package else 0)]
    return ".".join([*parent, base] if base else parent)


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = list(path.relative_to(SOURCE).with_suffix("").parts)
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


CONTRACT = Contract.read(ROOT / "pyproject.toml")


def test_every_module_keeps_the_import_contract() -> None:
    found = [
        violation
        for module, path in modules()
        for violation in CONTRACT.violations(module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")
    ]
    assert not found, "\n".join(found)


def imports_inside(package: str) -> dict[str, set[str]]:
    """Which modules of the package each of its modules imports."""
    sources = {module: path for module, path in modules() if package_of(module) == package}
    found: dict[str, set[str]] = {}
    for module, path in sources.items():
        names = {name for _, name in imports(module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")}
        names |= submodules(module, path)
        found[module] = {name for name in names if name in sources and name != module and sources[name].name != "__init__.py"}
    return found


def submodules(module: str, path: Path) -> set[str]:
    """What ``from package import name`` imports where the name is a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    bases = [(absolute(module, node.module, node.level, is_package=path.name == "__init__.py"), node.names) for node in nodes]
    return {f"{base}.{alias.name}" for base, names in bases for alias in names}


@pytest.mark.parametrize("package", sorted({name for line in CONTRACT.layers for name in line}))
def test_no_circle_of_imports_inside_a_package(package: str) -> None:
    inside = imports_inside(package)
    assert circles(inside) == []
    assert circles(rooms_of(inside, f"ottla.{package}")) == [], "rooms of the package import each other"


def test_only_the_node_and_its_starters_know_the_complete_broker() -> None:
    allowed = {
        "ottla.runtime.serve",
        "ottla.cli.broker",
        "ottla.cli.dev",
        "ottla.testing.thread_nodes",
    }  # and the simulation, which looks into everything
    users = {
        module
        for module, path in modules()
        for _, name in imports(module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")
        if name == "ottla.broker.node"
    }
    assert {user for user in users if not user.startswith("ottla.sim.")} <= allowed


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert rooms_of({"p.x.one": {"p.y.one"}, "p.y.two": {"p.x.two"}, "p.z": {"p.x.one"}}, "p") == {
        "p.x": {"p.y"}, "p.y": {"p.x"}, "p.z": {"p.x"},
    }  # fmt: skip


def test_the_package_itself_imports_nothing_of_its_own() -> None:
    tree = SOURCE / "ottla" / "__init__.py"
    found = [name for _, name in imports("ottla", tree.read_text(encoding="utf-8"), is_package=True) if name.startswith("ottla")]
    assert not found


def test_architecture_shows_the_table() -> None:
    shown = section("Who may import whom").split("```")[1]
    lines = [re.split(r"  +", line)[0].split(" | ") for line in shown.strip().splitlines()]
    assert lines == CONTRACT.layers


def test_architecture_lists_the_rooms_of_the_broker_from_the_ground_up() -> None:
    listed = re.search(r"The rooms of `broker/`.*?\.\n", section("Who may import whom"), re.DOTALL)
    assert listed is not None
    rooms = re.findall(r"`([a-z]+)`", listed[0])
    known = {f"ottla.broker.{path.name}" for path in (SOURCE / "ottla" / "broker").iterdir() if (path / "__init__.py").exists()}
    assert {f"ottla.broker.{room}" for room in rooms} == known
    arrows = rooms_of(imports_inside("broker"), "ottla.broker")
    above = {room: {other.rpartition(".")[2] for other in arrows[f"ottla.broker.{room}"] & known} for room in rooms}
    assert not [(room, other) for at, room in enumerate(rooms) for other in above[room] & set(rooms[at:])]


def section(heading: str) -> str:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_each_package_is_on_one_line_of_the_table_only() -> None:
    names = [name for line in CONTRACT.layers for name in line]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ottla.wire.compiler", "from ottla.messages import produce"),
        ("ottla.wire.compiler", "import ottla.messages.produce"),
        ("ottla.wire.compiler", "from ..messages.produce import ProduceRequest"),
        ("ottla.wire.compiler", "from .. import messages"),
        ("ottla.wire.compiler", "from ottla import messages"),
        ("ottla.wire.compiler", "def late():\n    import ottla.broker.node"),
        ("ottla.wire.compiler", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ottla.broker import node"),
        ("ottla.wire.compiler", "import importlib\nimportlib.import_module('ottla.broker.node')"),
        ("ottla.broker.node", "from ottla.client.producer import Producer"),
        ("ottla.client.producer", "from ottla.broker.node import Node"),
        ("ottla.runtime.serve", "import ottla.sim.loop"),
        ("ottla.spark.source", "import ottla.console"),
        ("ottla.aio", "from ottla.sync import Producer"),
        ("ottla.groups.classic.group", "from ottla.replication import leader"),
        ("ottla.groups.classic.group", "from ottla import replication"),
        ("ottla.types", "from ottla.errors import ErrorCode"),
        ("ottla.client.producer", "import ottla.cli.main"),
        ("ottla.cli.main", "import pyspark_ottla"),
        ("ottla.unheard_of", "import ottla.types"),
        ("ottla.cli.main", "import ottla.unheard_of"),
    ],
)
def test_an_import_upwards_or_sideways_is_found(module: str, source: str) -> None:
    assert len(CONTRACT.violations(module, source)) == 1


@pytest.mark.parametrize(
    "package", ["types", "ports", "wire", "records.batch", "groups.classic", "storage.log", "broker.node", "client.producer"]
)
@pytest.mark.parametrize(
    "source", ["import socket", "from ssl import SSLContext", "import threading", "import time", "from random import Random"]
)
def test_the_outside_world_is_closed_up_to_broker_and_client(package: str, source: str) -> None:
    assert len(CONTRACT.violations(f"ottla.{package}", source)) == 1


@pytest.mark.parametrize("package", ["runtime.sockets", "sim.loop", "aio", "sync", "spark.source", "cli.main"])
def test_the_outside_world_is_open_above_broker_and_client(package: str) -> None:
    assert CONTRACT.violations(f"ottla.{package}", "import socket, ssl, threading, time, random, asyncio") == []


@pytest.mark.parametrize(
    ("package", "is_allowed"), [("net.connection", False), ("storage.log", False), ("broker.node", True), ("client.x", True)]
)
def test_asyncio_begins_at_broker_and_client(package: str, is_allowed: bool) -> None:
    assert (CONTRACT.violations(f"ottla.{package}", "from asyncio import sleep") == []) is is_allowed


def test_the_ground_imports_the_standard_library_only() -> None:
    assert len(CONTRACT.violations("ottla.errors", "import msgspec")) == 1
    assert CONTRACT.violations("ottla.errors", "import enum") == []
    assert CONTRACT.violations("ottla.wire.schema", "import msgspec") == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ottla.cli.main", "from ottla import __version__, aio, spark"),
        ("ottla.broker.node", "import asyncio\nfrom ottla.storage.log.partition_log import Log\nfrom ottla.types import Offset"),
        ("ottla.groups.classic.group", "from . import states\nfrom .offsets import Offsets\nfrom ..machine import Decision"),
        ("ottla.__main__", "from ottla.cli.main import main"),
    ],
)
def test_imports_downwards_and_of_the_own_package_are_free(module: str, source: str) -> None:
    assert CONTRACT.violations(module, source) == []


def test_relative_imports_of_a_package_are_resolved_from_itself() -> None:
    assert CONTRACT.violations("ottla.groups", "from .classic import Group\nfrom ..machine import Decision", is_package=True) == []
    assert len(CONTRACT.violations("ottla.groups", "from ..broker import node", is_package=True)) == 1
