"""What the sources of encoders and decoders have in common."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, auto
from typing import Any, Final

from ottla.errors import EncodeError
from ottla.wire import primitives
from ottla.wire.schema import DECLARATIONS, FIELDS, Field

ELEMENTS_MAX: Final = 1 << 23
"""Array elements of one message that is no request."""
ELEMENTS_AT_ONCE: Final = 2000
"""Array elements that a codec works off without a pause: some milliseconds."""
STEP_ELEMENTS: Final = 1000


class Form(IntEnum):
    """A codec's way with a message of many elements."""

    WHOLE = auto()
    """Works it off."""
    FEW = auto()
    """Refuses it: ``ManyElements`` above ``ELEMENTS_AT_ONCE``."""
    STEPS = auto()
    """Is a generator, which pauses after every ``STEP_ELEMENTS``."""


class Generator:
    """The generator that both directions share: indented lines, fresh variable names, and the names that the source may use.

    ``message`` is whose versions count when ``cls`` is a part of it.
    """

    def __init__(self, cls: type, version: int, message: type | None = None, *, form: Form = Form.WHOLE) -> None:
        declaration = DECLARATIONS[message or cls]
        low, high = declaration.versions
        if not low <= version <= high:
            raise EncodeError(f"{(message or cls).__name__} has versions {low} to {high}, not {version}")
        self.cls = cls
        self.version = version
        self.form = form
        self.is_flexible = version >= declaration.flexible
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {"uvarint": primitives.uvarint, "text": primitives.text, "E": b""}
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def prologue(self, budget_max: int) -> str:
        """Returns the start of a function of this form; one that pauses is a generator even where no array could make it pause."""
        if self.form is Form.STEPS:
            return f"    budget = {budget_max}; left = {STEP_ELEMENTS}\n    if 0: yield\n"
        return f"    budget = {budget_max if self.form is Form.WHOLE else ELEMENTS_AT_ONCE}\n"

    def step(self) -> None:
        """Starts an element of an array."""
        if self.form is Form.STEPS:
            self.line("left -= 1")
            self.line(f"if left < 0: yield; left = {STEP_ELEMENTS}")

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def bind(self, prefix: str, value: Any) -> str:
        """Returns a name in the source for a value made here."""
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def use(self, function: Callable[..., Any]) -> str:
        self.names[function.__name__] = function
        return function.__name__

    def fields(self, cls: type) -> list[tuple[str, Field]]:
        return [(name, field) for name, field in FIELDS[cls].items() if field.is_in(self.version)]

    def plain(self, cls: type) -> list[tuple[str, Field]]:
        return [(name, field) for name, field in self.fields(cls) if not (self.is_flexible and field.is_tagged_in(self.version))]

    def tagged(self, cls: type) -> list[tuple[str, Field]]:
        if not self.is_flexible:
            return []
        found = [(name, field) for name, field in self.fields(cls) if field.is_tagged_in(self.version)]
        return sorted(found, key=lambda item: item[1].tag or 0)
