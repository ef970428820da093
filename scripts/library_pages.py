"""The pages of the reference for who writes programs and tests: of ``ottla.aio`` and ``ottla.sync``, and of ``ottla.testing``."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, is_typeddict

import msgspec
from page_parts import alias, attributes_of, block, code, declaration, doc, is_context, members, page, returned, table, vars_of

from ottla import aio, pytest_plugin, sync, testing
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.options import AdminOptions, AdminSettings, ClusterOptions, ClusterSettings, ConsumerOptions, ProducerOptions
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import INT_MAX, values_of
from ottla.errors import ErrorCode
from ottla.testing import Fault, Faults, History, ProcessNodes, SecureBroker, Served, ThreadNodes
from ottla.types import Secret

# -- the client

SETTINGS: Final = {
    "all clients": (ClusterSettings, ClusterOptions),
    "producers": (ProducerSettings, ProducerOptions),
    "consumers": (ConsumerSettings, ConsumerOptions),
    "administration": (AdminSettings, AdminOptions),
}
CLIENTS: Final = {"Producer": "producers", "Consumer": "consumers", "Admin": "administration"}
"""And whose settings they have."""
SECTIONS: Final = {
    "Errors": "What the methods raise. Each is a `KafkaError`; its `code` says more, and [Error codes](errors.md) has them all.",
    "Types": "Names for what methods and settings take. `C` is a `ConfigResource`, `P` a `PartitionLike`; `K`, `V` and `T` are any type.",
    "Enums": "Choices. They are printed by their names.",
    "Data classes": "What methods take and return. A field without a default must be given.",
}
LEAD: Final = """\
There are two modules with the same names. `ottla.sync` is for programs without an event loop, and for threads; its calls return when they
are done. `ottla.aio` is for asyncio: most of its calls are awaited. A declaration below is that of `ottla.sync`, and the line after it is
the call in either module. Where the result differs, the declaration has both.

- Clients: [Producer](#producer), [Consumer](#consumer), [Admin](#admin).
- Their settings: [of all clients](#settings-of-all-clients), [of producers](#settings-of-producers),
  [of consumers](#settings-of-consumers), [of administration](#settings-of-administration).
- What methods raise: [errors](#errors). What they take and return: [types](#types), [enums](#enums) and [data classes](#data-classes).

Times are milliseconds wherever a name ends with `_ms`, sizes are bytes, and an offset that ends something is that after the last record.
[The client](../client.md) shows the use of all this, and [error codes](errors.md) has what each code means."""
OF_SETTINGS: Final = f"""\
Settings are keyword arguments where a client is made, by Kafka's names with underscores. `values` has the bounds and the unit; a number
without an upper bound goes to {INT_MAX}. Numbers and truth values may be texts, as files have them: `linger_ms="5"`. What is out of
bounds, or unknown, raises a KafkaError INVALID_CONFIG that names the setting.

"""
HOW_MADE: Final = """\
The same in `ottla.sync` and `ottla.aio`; that of `ottla.aio` is made within a coroutine. `bootstrap_servers` has one broker or some, as
`host:port` with commas between them or as a list; the port is 9092 where it is left out. No broker is asked yet."""
IN_BYTES: Final = {"batch_size", "max_request_size", "buffer_memory", "fetch_min_bytes", "fetch_max_bytes", "max_partition_fetch_bytes"}
MEANINGS: Final = dict(line.split("\t") for line in (Path(__file__).parent / "client_settings.tsv").read_text().splitlines())
"""Setting to what it does."""


def settings_of(kind: type, options: Any) -> Iterator[list[str]]:
    """Yields each setting, with the type that a type checker accepts: that of ``options``, where it is there."""
    accepted = {name: found.__forward_arg__ for name, found in options.__annotations__.items()}
    for found in dataclasses.fields(kind):
        if found.name in ("fetch", "membership"):
            assert isinstance(found.default_factory, type), "settings in groups"
            yield from settings_of(found.default_factory, options)
        else:
            unit = unit_of(found.name)
            default = code(repr(found.default) if isinstance(found.default, str) else found.default) + (unit and f" {unit}")
            yield [
                code(found.name),
                code(accepted.get(found.name, found.type)),
                default,
                allowed(values_of(kind, found.name), unit),
                MEANINGS[found.name],
            ]


def unit_of(setting: str) -> str:
    return "ms" if setting.endswith("_ms") else "bytes" if setting in IN_BYTES else ""


def allowed(values: tuple[object, ...], unit: str) -> str:
    """Returns the values that a setting may have, with their unit; empty where any of its type may be given."""
    match values:
        case ():
            return ""
        case (bool(), bool()):
            return "`True`, `False`"
        case (int() as low, int() as high):
            return " ".join(filter(None, ("from", str(low), "" if high == INT_MAX else f"to {high}", unit)))
    return ", ".join(code(each) for each in values)


def library_page() -> str:
    parts = [page("The client library", LEAD)]
    head, said = ["setting", "type", "default", "values", "meaning"], OF_SETTINGS
    for who, (kind, options) in SETTINGS.items():
        parts.append(f"## Settings of {who}\n\n{said}{table(head, settings_of(kind, options))}")
        said = ""
    for name, who in CLIENTS.items():
        parts += client(name, getattr(aio, name), getattr(sync, name), who)
    for title, what in SECTIONS.items():
        parts.append(f"## {title}\n\n{what}\n")
        parts += [entry(name) for name in aio.__all__ if name not in CLIENTS and section_of(name) == title]
    return "\n".join(parts)


def client(name: str, kind: type, blocking: type, who: str) -> Iterator[str]:
    """Yields the entries of a client: ``kind`` is that of ``ottla.aio``, and ``blocking`` that of ``ottla.sync``."""
    listed = ", ".join(f"[{each}](#{name}{each})".replace(f"#{name}", f"#{name.lower()}") for each in sorted(vars_of(kind)))
    yield f"## {name}\n\n{doc(kind)}\n\nMethods and properties: {listed}.\n"
    made = f'{name}(bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings)'
    of = f"Its settings are those [of all clients](#settings-of-all-clients) and [of {who}](#settings-of-{who})."
    text = f"{block(made)}\n{HOW_MADE} {of}\n"
    yield f"### {name}: how it is made\n\n{text}"
    each = name.lower()
    opened = f"with {name}(...) as {each}:  # ottla.sync\nasync with {name}(...) as {each}:  # ottla.aio"
    yield f"### {name}: with and async with\n\n{block(opened)}\nCloses at the end of the block, as [{name}.close](#{each}close) does.\n"
    if hasattr(kind, "__aiter__"):
        loops = block(f"for record in {each}:  # ottla.sync\nasync for record in {each}:  # ottla.aio")
        yield f"### {name}: for and async for\n\n{loops}\n{doc(kind.__aiter__)}\n"
    for method, found in sorted(vars_of(kind).items()):
        yield with_links(f"### {name}.{method}\n\n{member(name, method, found, inspect.getattr_static(blocking, method))}")


def member(name: str, method: str, found: object, blocking: object) -> str:
    """Returns the entry of a method or property, of both modules."""
    if isinstance(found, property):
        return f"{block(f'{method}: {returned(found)}')}\n{doc(found)}\n"
    assert inspect.isfunction(found)
    assert inspect.isfunction(blocking)
    of_sync, of_aio = (re.sub(r"(?<![.\w])Future\[", "concurrent.futures.Future[", declaration(method, each)) for each in (blocking, found))
    arguments, _, result = of_aio.rpartition(" -> ")
    assert of_sync.startswith(arguments), f"{name}.{method} takes the same in both modules"
    declared = of_sync if of_sync == of_aio else f"{of_sync}  # ottla.aio: {result}"
    paragraphs = [text for text in doc(blocking).split("\n\n") if text not in doc(found).split("\n\n")]
    beside = "".join(f"\n\nIn `ottla.sync`: {text}" for text in paragraphs)
    return f"{block(declared)}\n{call(name.lower(), method, found)}\n\n{doc(found)}{beside}\n"


def call(of: str, method: str, found: Any) -> str:
    """Returns how the method is called in either module."""
    arguments = "..." if len(inspect.signature(found).parameters) > 1 else ""
    called = f"{of}.{method}({arguments})"
    if "Future[" in str(inspect.signature(found).return_annotation) and "list" not in str(inspect.signature(found).return_annotation):
        return f"Sync: `future = {called}`, then `future.result()`; asyncio: `future = await {called}`, then `await future`."
    if is_context(found):
        return f"Sync: `with {called}:`, asyncio: `async with {called}:`."
    if not inspect.iscoroutinefunction(found):
        return f"Sync and asyncio: `{called}`, without `await`."
    return f"Sync: `{called}`, asyncio: `await {called}`."


def with_links(text: str) -> str:
    """Returns the entry of a method with links to the entries of the types that its declaration names."""
    declared = "".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    named = [name for name in dict.fromkeys(re.findall(r"\w+", declared)) if name in aio.__all__ and name not in CLIENTS]
    return text + f"\nTypes: {', '.join(f'[{name}](#{name.lower()})' for name in named)}.\n" if named else text


def section_of(name: str) -> str:
    found = getattr(aio, name)
    if not inspect.isclass(found) or is_typeddict(found) or alias_is(name, found):
        return "Types"
    return "Errors" if issubclass(found, BaseException) else "Enums" if issubclass(found, enum.Enum) else "Data classes"


def alias_is(name: str, found: type) -> bool:
    """Whether it is another name of a type, such as ``tuple[str, int]``."""
    return found.__name__ != name


def entry(name: str) -> str:
    """Returns what a name means: a class with its fields or members, or what a type stands for."""
    found = getattr(aio, name)
    section = section_of(name)
    if section == "Types" and not is_typeddict(found):
        said = alias(aio.__name__, name)
        return f"### {name}\n\n{block(f'{name} = {said.text}')}\n{said.doc}\n"
    body = {"Types": keys, "Errors": error, "Enums": choices, "Data classes": fields}[section](found)
    return f"### {name}\n\n{doc(found)}\n" + (f"\n{body}" if body else "")


def keys(options: Any) -> str:
    """Returns where the keys of a dict of settings are described."""
    [who] = [who for who, (_, kind) in SETTINGS.items() if kind is options]
    others = "" if options is ClusterOptions else ", and those [of all clients](#settings-of-all-clients)"
    return f"Its keys are the settings [of {who}](#settings-of-{who.replace(' ', '-')}){others}.\n"


def error(kind: type) -> str:
    """Returns its base, and what it has beside what its base has."""
    base = kind.__mro__[1]
    own = {name: said for name, said in attributes_of(kind).items() if base is Exception or name not in attributes_of(base)}
    rows = [[code(name), code(said.text), said.doc] for name, said in own.items()]
    rows += [[code(name), code(returned(found)), doc(found)] for name, found in vars(kind).items() if isinstance(found, property)]
    head = block(f"class {kind.__name__}({base.__name__})") if base.__name__ in aio.__all__ else ""
    return "\n".join(part for part in (head, table(["attribute", "type", "meaning"], rows) if rows else "") if part)


def choices(kind: type[enum.Enum]) -> str:
    if kind is ErrorCode:
        return "All of them are on the page of [error codes](errors.md).\n"
    said = attributes_of(kind)
    return table(["member", "meaning"], ([code(one.name), said[one.name].doc] for one in kind))


def fields(kind: type) -> str:
    if kind is Secret:
        return "\n".join(members(kind)).replace("### ", "#### ")
    said = attributes_of(kind)
    rows = [
        [code(name), code(said[name].text.removesuffix("_co")), code(default), said[name].doc]
        for name, default in defaults_of(kind).items()
    ]
    rows += [[code(name), code(returned(found)), "", doc(found)] for name, found in vars(kind).items() if isinstance(found, property)]
    return table(["field", "type", "default", "meaning"], rows) if rows else ""


def defaults_of(kind: Any) -> Mapping[str, str]:
    """Returns the fields with their defaults, as a program writes them; empty for one that has none."""
    if dataclasses.is_dataclass(kind):
        return {each.name: written(each.default, each.default_factory, dataclasses.MISSING) for each in dataclasses.fields(kind)}
    if issubclass(kind, msgspec.Struct):
        return {each.name: written(each.default, each.default_factory, msgspec.NODEFAULT) for each in msgspec.structs.fields(kind)}
    names = getattr(kind, "_fields", ())  # of a named tuple
    return {name: repr(kind._field_defaults[name]) if name in kind._field_defaults else "" for name in names}


def written(value: Any, factory: Any, missing: object) -> str:
    if value is not missing:
        return f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)
    return "" if factory is missing else repr(factory())


# -- tests


INTERNAL: Final = {
    ThreadNodes: {"check", "start_stopped"},
    ProcessNodes: {"check", "log_positions", "log_since"},
    SecureBroker: {"check", "start_stopped"},
    Faults: {"claim", "happen", "release", "remove"},
    Fault: {"fits", "warn_if_idle"},
    History: {"judge", "operations", "warn_if_empty"},
}
"""What the fixtures and the nodes call, and no test. The order is that of the page."""


def testing_page() -> str:
    lead = (
        "The public names of `ottla.testing`, and the fixtures that pytest finds. [Tests with brokers and clusters](../testing.md) shows\n"
        "their use. Arguments `properties` are broker keys with `_` for `.`; an instance is for the block of a `with`."
    )
    parts = [page("Tests: ottla.testing", lead), "## Fixtures\n", table(["fixture", "scope", "what it is"], fixtures())]
    for name in testing.__all__:
        found = getattr(testing, name)
        if inspect.isfunction(found):
            parts.append(f"## {name}\n\n{block(declaration(name, found))}\n{doc(found)}\n")
    of_all = {name for name in vars_of(ThreadNodes) if said_of(ThreadNodes, name) == said_of(ProcessNodes, name)}
    not_shared = vars_of(ThreadNodes).keys() - of_all | INTERNAL[ThreadNodes]
    parts += [f"## Served\n\n{doc(Served)}\n", *members(ThreadNodes, title="Served", without=not_shared)]
    for kind, internal in INTERNAL.items():
        assert internal <= vars_of(kind).keys(), f"{kind.__name__} has not all of {internal}"
        parts.append(f"## {kind.__name__}\n\n{doc(kind)}\n\n{beside(kind)}".rstrip("\n") + "\n")
        said = attributes_of(kind) if kind in (ThreadNodes, Fault) else {}
        parts += [f"### {kind.__name__}.{name}\n\n{block(f'{name}: {each.text}')}\n{each.doc}\n" for name, each in said.items() if each.doc]
        others = vars_of(ThreadNodes).keys() if kind is SecureBroker else of_all if issubclass(kind, Served) else set()
        parts += members(kind, without=internal | others)
    refused = block("class BrokerKeyError(KafkaError, ValueError)")
    parts.append(f"## BrokerKeyError\n\n{refused}\n{doc(testing.BrokerKeyError)}\n")
    return "\n".join([*parts, f"## Seen\n\n{doc(testing.Seen)}\n\n{fields(testing.Seen)}"])


def beside(kind: type) -> str:
    """Returns how it is made, or what it has beside what its entry lists."""
    if kind is History:
        return block(declaration("History", kind).removeprefix("def ").removesuffix(" -> None"))
    if kind is SecureBroker:
        return "It has what [Served](#served) and [ThreadNodes](#threadnodes) have, and:"
    return "It has what [Served](#served) has, and:" if issubclass(kind, Served) else ""


def said_of(kind: type, name: str) -> str | None:
    """Returns the docstring of a member, with a base's where it has none; None where there is no such member."""
    return inspect.getdoc(getattr(kind, name)) if hasattr(kind, name) else None


def fixtures() -> Iterator[list[str]]:
    """Yields the fixtures of the plugin, as its source has them."""
    for node in ast.parse(Path(pytest_plugin.__file__).read_text()).body:
        decorators = [ast.unparse(found) for found in node.decorator_list] if isinstance(node, ast.FunctionDef) else []
        if isinstance(node, ast.FunctionDef) and any(found.startswith("pytest.fixture") for found in decorators):
            scope = "session" if any("session" in found for found in decorators) else "test"
            yield [code(node.name), scope, ast.get_docstring(node) or ""]
