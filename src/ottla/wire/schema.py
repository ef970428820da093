"""The language in which messages are declared.

A message is a class whose fields say what is on the wire, for all versions at once::

    class HeartbeatRequest(Request, api_key=12, versions=(0, 4), flexible=4):
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string(since=3, nullable=3, default=None)

The classes are msgspec structs: cheap to make, compared by value, every field with a default. ``since`` and ``until``
bound the versions that carry a field, ``nullable`` is the first version in which it may be null, ``tag`` makes it a
tagged field (KIP-482). A field that a version does not carry is left out when writing and has its default when read.
A struct under a tag is None when absent. Topic ids are 16 raw bytes.

Source: KIP-482 (flexible versions), Kafka's message definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, dataclass_transform

import msgspec

VERSION_MAX: Final = 32767
ZERO_UUID: Final = bytes(16)

FIXED_FORMATS: Final = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "boolean": ("?", 1),
    "uuid": ("16s", 16),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a declaration."""

    kind: str
    default: Any
    since: int
    until: int
    nullable: int | None
    tag: int | None
    tag_since: int
    element: Any = None  # of an array or a struct: a Field (primitive) or a Struct class

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_tagged_in(self, version: int) -> bool:
        return self.tag is not None and version >= self.tag_since

    def is_nullable_in(self, version: int) -> bool:
        return self.nullable is not None and version >= self.nullable


def _primitive(kind: str, zero: Any) -> Callable[..., Any]:
    def declare(
        *,
        default: Any = zero,
        since: int = 0,
        until: int = VERSION_MAX,
        nullable: int | None = None,
        tag: int | None = None,
        tag_since: int | None = None,
    ) -> Any:
        return Field(kind, default, since, until, nullable, tag, since if tag_since is None else tag_since)

    declare.__name__ = declare.__qualname__ = kind
    return declare


int8 = _primitive("int8", 0)
int16 = _primitive("int16", 0)
uint16 = _primitive("uint16", 0)
int32 = _primitive("int32", 0)
uint32 = _primitive("uint32", 0)
int64 = _primitive("int64", 0)
float64 = _primitive("float64", 0.0)
boolean = _primitive("boolean", False)
uuid = _primitive("uuid", ZERO_UUID)
string = _primitive("string", "")
binary = _primitive("binary", b"")
records = _primitive("records", None)


def array(
    element: Any,
    *,
    default: Any = (),
    since: int = 0,
    until: int = VERSION_MAX,
    nullable: int | None = None,
    tag: int | None = None,
    tag_since: int | None = None,
) -> Any:
    """Declares any number of ``element``: a Struct class, or a primitive such as ``int32()``."""
    return Field("array", [] if default == () else default, since, until, nullable, tag, since if tag_since is None else tag_since, element)


def struct(
    element: type[Struct],
    *,
    since: int = 0,
    until: int = VERSION_MAX,
    nullable: int | None = None,
    tag: int | None = None,
    tag_since: int | None = None,
) -> Any:
    """Declares one nested struct. Where it may be absent (nullable, or under a tag) its default is None, elsewhere a struct of defaults."""
    return Field("struct", None, since, until, nullable, tag, since if tag_since is None else tag_since, element)


FIELDS: Final[dict[type, dict[str, Field]]] = {}
"""Every declared class's fields, in wire order."""


@dataclass_transform()
class _StructMeta(msgspec.StructMeta):
    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> _StructMeta:
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key, field in fields.items():
            is_always_there = field.kind == "struct" and field.nullable is None and field.tag is None
            namespace[key] = msgspec.field(default_factory=field.element) if is_always_there else field.default
        cls = super().__new__(mcls, name, bases, namespace, gc=False)
        FIELDS[cls] = fields
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, namespace)


class Struct(msgspec.Struct, metaclass=_StructMeta):
    """A part of a message."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of a message class about itself. ``flexible`` is the first flexible version; ``code`` the API key or record type."""

    code: int
    versions: tuple[int, int]
    flexible: int


DECLARATIONS: Final[dict[type, Declaration]] = {}


class _MessageMeta(_StructMeta):
    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int = -1,
        versions: tuple[int, int] = (0, 0),
        flexible: int = VERSION_MAX,
    ) -> _MessageMeta:
        cls = super().__new__(mcls, name, bases, namespace)
        DECLARATIONS[cls] = Declaration(api_key, versions, flexible)
        return cls  # type: ignore[return-value]


class Message(Struct, metaclass=_MessageMeta):
    """The root of a declaration: what is encoded and decoded at once."""


class Request(Message):
    """A message that a client sends, after a request header."""


class Response(Message):
    """A message that a broker answers with, after a response header."""


class Stored(Message):
    """A message inside a record: on an internal topic or in the metadata log. ``api_key`` is the record type."""


def declaration_of(message: type[Message] | Message) -> Declaration:
    return DECLARATIONS[message if isinstance(message, type) else type(message)]
