"""What the pages of the reference are made of: titles, tables, signatures, and what the source says of a name."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

SIGNATURE_WIDTH: Final = 100
"""A signature that is longer has a line for each argument."""


def page(title: str, lead: str) -> str:
    return f"# {title}\n\n<!-- Written by `make reference` from the code: change that. -->\n\n{lead}\n"


def cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "|--" * len(names) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(map(cell, row)) + " |" for row in rows)]) + "\n"


def code(value: object) -> str:
    return f"`{value}`" if str(value) else ""


def declaration(name: str, function: Callable[..., Any], *, word: str = "") -> str:
    """Returns a function as it is declared, without the quotes of its annotations; those of defaults stay."""
    found = inspect.signature(function)
    taken = [one for one in found.parameters.values() if one.name not in ("positional", "others")]  # which nothing is accepted as
    parts = [_plain(str(one)) for one in taken if one.name != "self"]
    is_bare = any(one.kind is one.VAR_POSITIONAL for one in taken)
    first = next((at for at, one in enumerate(one for one in taken if one.name != "self") if one.kind is one.KEYWORD_ONLY), None)
    if first is not None and not is_bare:
        parts.insert(first, "*")
    returned = found.return_annotation
    end = "" if returned is inspect.Signature.empty else f" -> {_plain(repr(returned) if isinstance(returned, str) else str(returned))}"
    if is_context(function):
        end = end.replace("AsyncIterator", "AbstractAsyncContextManager").replace(" Iterator", " AbstractContextManager")
    start = f"{word}def {name}" if word != "class " else f"class {name}"
    line = f"{start}({', '.join(parts)}){end}"
    return line if len(line) <= SIGNATURE_WIDTH else f"{start}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def _plain(text: str) -> str:
    """Returns the annotation of an argument or a result without quotes, and members of enums by their names."""
    text = re.sub(r"^(\*{0,2}\w+: )?(['\"])(.*?)\2(?= = |$)", lambda found: (found[1] or "") + found[3], text)
    return re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text)


def is_context(function: Callable[..., Any]) -> bool:
    """Whether it is the function of a ``with``."""
    inner = inspect.unwrap(function)
    return inner is not function and (inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner))


def block(text: str) -> str:
    return f"```python\n{text}\n```\n"


def doc(found: object) -> str:
    return inspect.getdoc(found) or ""


def members(kind: type, *, title: str = "", without: Iterable[str] = ()) -> Iterator[str]:
    """Yields an entry for each public method and property, inherited ones among them."""
    for name, found in sorted(vars_of(kind).items()):
        if name in without:
            continue
        head = f"### {title or kind.__name__}.{name}\n\n"
        if inspect.isfunction(found):
            word = "async " if inspect.iscoroutinefunction(found) else ""
            yield f"{head}{block(declaration(name, found, word=word))}\n{inspect.getdoc(getattr(kind, name)) or ''}\n"
        elif isinstance(found, property):
            yield f"{head}{block(f'{name}: {returned(found)}')}\n{inspect.getdoc(getattr(kind, name)) or ''}\n"


def returned(found: property) -> str:
    """Returns the type of a property, as its function is annotated."""
    return _plain(str(inspect.signature(found.fget).return_annotation)) if found.fget is not None else ""


def vars_of(kind: type) -> dict[str, Any]:
    """Public members, inherited ones among them."""
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_") and hasattr(kind, name)}


class Said(NamedTuple):
    """What the source says of a name: the expression or the annotation, and the docstring after it."""

    text: str
    doc: str


def attributes_of(kind: type) -> dict[str, Said]:
    """Returns the fields or members of a class, and what its ``__init__`` assigns, by their names; base classes' first."""
    found: dict[str, Said] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("ottla"):
            [node] = [each for each in ast.walk(_tree(base.__module__)) if isinstance(each, ast.ClassDef) and each.name == base.__name__]
            init = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            for body, of in ((node.body, ""), *((each.body, "self.") for each in init)):
                said = {name.removeprefix(of): each for name, each in _assigned(body) if name.startswith(of)}
                found |= {name: each for name, each in said.items() if not name.startswith("_")}
    return found


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, Said]]:
    for node, follower in zip(body, [*body[1:], ast.Pass()], strict=True):
        match follower:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                said = inspect.cleandoc(text)
            case _:
                said = ""
        match node:
            case ast.AnnAssign(target=target, annotation=kind):
                yield ast.unparse(target), Said(re.sub(r"^Final\[(.*)\]$", r"\1", ast.unparse(kind)), said)
            case ast.Assign(targets=[target], value=value):
                yield ast.unparse(target), Said(ast.unparse(value), said)


def alias(module: str, name: str) -> Said:
    """Returns what the name means that the module assigns, or imports from where it is assigned."""
    tree = _tree(module)
    for assigned, said in _assigned(tree.body):
        if assigned == name:
            return said
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and any(each.name == name for each in node.names):
            return alias(node.module, name)
    raise LookupError(f"{module} neither assigns nor imports {name}")


@lru_cache
def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
