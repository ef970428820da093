"""Circles of imports: between the modules of a package, and between its rooms (the directories in it)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set


def circles(imports: Mapping[str, Set[str]]) -> list[list[str]]:
    """Each group of names that can all reach each other, sorted; Tarjan's strongly connected components of two and more."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_names: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        open_names.append(name)
        for other in sorted(imports.get(name, ())):
            if other not in number:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in open_names:
                lowest[name] = min(lowest[name], number[other])
        if lowest[name] == number[name]:
            at = open_names.index(name)
            group, open_names[at:] = open_names[at:], []
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(imports):
        if name not in number:
            visit(name)
    return sorted(found)


def rooms_of(imports: Mapping[str, Set[str]], package: str) -> dict[str, set[str]]:
    """The same between the directories of a package; a module that lies in none of them is a room by itself."""

    def room_of(module: str) -> str:
        inside = module.removeprefix(package + ".").split(".")
        return f"{package}.{inside[0]}"

    rooms: dict[str, set[str]] = {}
    for module, others in imports.items():
        rooms.setdefault(room_of(module), set()).update(_without(map(room_of, others), room_of(module)))
    return rooms


def _without(names: Iterable[str], name: str) -> set[str]:
    return {other for other in names if other != name}
