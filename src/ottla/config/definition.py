"""What is known of one configuration key, and how its text becomes a value.

Source: Kafka's ConfigDef (types), KIP-226 (which keys change while a broker runs).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import msgspec

from ottla.errors import ErrorCode, KafkaError
from ottla.types import Secret

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308
UNPROTECTED: Final = "what it asks for is not supported yet; remove it, and let only trusted hosts reach the listeners"


class ConfigType(Enum):
    """Kafka's ConfigDef types, with the numbers that DescribeConfigs v3+ sends."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(Enum):
    """The scope of a broker's key that may change while the broker runs. Topic and group keys always may."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"  # for each broker by itself, too


_INTEGER_BOUNDS: Final = {
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.LONG: (-(2**63), LONG_MAX),
}
_UNITS: Final = {".ms": "milliseconds", ".seconds": "seconds", ".minutes": "minutes", ".hours": "hours", ".bytes": "bytes"}


class ConfigKey(msgspec.Struct, frozen=True, gc=False):
    """One key. ``low``, ``high``, ``refused``, ``choices`` and ``pattern`` bound what is accepted."""

    name: str
    type: ConfigType
    default: Any
    doc: str
    low: float | None = None
    high: float | None = None
    refused: tuple[int, ...] = ()  # within the bounds, and yet not legal
    choices: tuple[str, ...] | None = None  # of a list, for each item
    ignores_case: bool = False  # of the choices
    pattern: str | None = None  # what the whole text (of a list, each item) has to match
    scope: Scope = Scope.READ_ONLY
    is_internal: bool = False  # accepted in a file, and not returned by DescribeConfigs
    is_shown_when_set: bool = False  # returned by DescribeConfigs only where it has a value of its own, and without its default
    broker_key: str | None = None  # of a topic's or group's key: where its default comes from
    without_effect: str | None = None  # why the value is accepted and changes nothing
    check: Callable[[str], object] | None = None  # raises INVALID_CONFIG, with the key's name, for a text that is not taken
    harmless: tuple[str, ...] | None = None  # the only values taken: any other would be believed to protect, and protects nothing

    @property
    def is_dynamic(self) -> bool:
        return self.scope is not Scope.READ_ONLY

    @property
    def is_sensitive(self) -> bool:
        """Its value is never returned."""
        return self.type is ConfigType.PASSWORD

    def _expected(self) -> str:
        """Returns what a value looks like, as the end of the error of one that does not; empty where the type says it."""
        if self.type is ConfigType.BOOLEAN:
            return ": expected true or false"
        if self.type not in _INTEGER_BOUNDS:
            return ""
        unit = next((f" of {unit}" for end, unit in _UNITS.items() if self.name.endswith(end)), "")
        return f": expected a whole number{unit}" + ("" if self.default is None else f", as in {self.default}")

    def parse(self, raw: str) -> Any:
        """Returns the value; KafkaError INVALID_CONFIG names key, value and what would be legal."""
        text = raw.strip()
        try:
            value = _PARSERS[self.type](text)
        except ValueError:
            raise self.refuse(raw, f"is not of type {self.type.name.lower()}{self._expected()}") from None
        if self.type in _INTEGER_BOUNDS:
            low, high = _INTEGER_BOUNDS[self.type]
            if not low <= value <= high:
                raise self.refuse(raw, f"does not fit a {self.type.name.lower()}")
        if self.low is not None and value < self.low:
            raise self.refuse(raw, f"is below {self.low}")
        if self.high is not None and value > self.high:
            raise self.refuse(raw, f"is above {self.high}")
        if value in self.refused:
            raise self.refuse(raw, "has no meaning")
        for item in value if isinstance(value, list) else [value]:
            if self.choices is not None and not self._is_choice(item, self.choices):
                raise self.refuse(raw, f"is not one of {', '.join(each or '(empty)' for each in self.choices)}")
            if self.pattern is not None and not re.fullmatch(self.pattern, item):
                raise self.refuse(raw, f"is not of the form {self.pattern}")
        if self.check is not None:
            self.check(text)
        if self.harmless is not None and text not in self.harmless:
            raise self.refuse(raw, f"would protect nothing: {UNPROTECTED}")
        return value

    def _is_choice(self, item: str, choices: tuple[str, ...]) -> bool:
        return item.lower() in map(str.lower, choices) if self.ignores_case else item in choices

    def refuse(self, raw: str, why: str) -> KafkaError:
        shown = "[hidden]" if self.is_sensitive else raw[:200]
        return KafkaError(ErrorCode.INVALID_CONFIG, f"{self.name}={shown} {why}")

    def format(self, value: Any) -> str | None:
        """Returns the text form that Kafka's tools show; None for a key without a value."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(value)
        return _java_double(value) if isinstance(value, float) else str(value)


def _java_double(value: float) -> str:
    """Returns the text of Java's Double.toString: plain from 0.001 up to 10,000,000, else with an exponent after ``E``."""
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "the value is finite"
    text = "".join(map(str, digits))
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent + len(digits) - 1}"


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError
    return lowered == "true"


def _parse_integer(text: str) -> int:
    if len(text) > 20 or "_" in text:  # int() takes 1_000, Kafka does not; and long texts take long
        raise ValueError
    return int(text)


def _parse_double(text: str) -> float:
    value = float(text)
    if value != value:
        raise ValueError
    return value


def parse_list(text: str) -> list[str]:
    """Returns the parts between commas, without the spaces around them; empty parts are left out."""
    return [part.strip() for part in text.split(",") if part.strip()]


_PARSERS: Final[Mapping[ConfigType, Callable[[str], Any]]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _parse_integer,
    ConfigType.SHORT: _parse_integer,
    ConfigType.LONG: _parse_integer,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: parse_list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: Secret,
}


def _of_type(kind: ConfigType) -> Callable[..., ConfigKey]:
    """Declares a key of the type: name, default, doc, and the other fields of ``ConfigKey`` by name."""

    def declare(name: str, default: Any, doc: str, **fields: Any) -> ConfigKey:
        return ConfigKey(name, kind, default, doc, **fields)

    return declare


boolean = _of_type(ConfigType.BOOLEAN)
string = _of_type(ConfigType.STRING)
int32 = _of_type(ConfigType.INT)
int16 = _of_type(ConfigType.SHORT)
int64 = _of_type(ConfigType.LONG)
double = _of_type(ConfigType.DOUBLE)
strings = _of_type(ConfigType.LIST)
class_name = _of_type(ConfigType.CLASS)
password = _of_type(ConfigType.PASSWORD)
