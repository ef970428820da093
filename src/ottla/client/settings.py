"""Settings of the clients: checked and converted when they are made.

A setting has the name of Kafka's key with ``_`` for ``.``, and Kafka's default. Values may be texts, as configuration files have them:
``linger_ms="5"``. What cannot be converted, is out of bounds, or has an unknown name is refused with INVALID_CONFIG, and the text says
what to write instead. Each field of a settings class is declared by one of the functions here, which says how it is checked.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from ottla.client.other_settings import OTHER_SETTINGS
from ottla.errors import ErrorCode, KafkaError
from ottla.types import Secret

INT_MAX: Final = 2**31 - 1
BROKERS: Final = "bootstrap_servers"
"""An argument of every client, and no setting of a kind."""
_CHECK: Final = "check"
_VALUES: Final = "values"
_WORD: Final = re.compile(r"\w+(?:\.\w+)*")
_BOOLEANS: Final = {"true": True, "false": False}
Check = Callable[[str, Any], Any]
_KEYS: Final[dict[str, str]] = {}
"""Kafka's name of each setting, and the name of the argument."""


def integer(default: int, *, low: int = 0, high: int = INT_MAX) -> Any:
    """Declares a whole number from ``low`` to ``high``."""

    def check(name: str, value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool):
            raise _invalid(name, value, "expected an integer")
        if not low <= number <= high:
            raise _invalid(name, value, f"it must be from {low} to {high}")
        return number

    return _field(default, check, values=(low, high))


def boolean(default: bool) -> Any:
    """Declares true or false, as themselves or as texts."""

    def check(name: str, value: Any) -> bool:
        found = _BOOLEANS.get(value.lower()) if isinstance(value, str) else value
        if not isinstance(found, bool):
            raise _invalid(name, value, "expected true or false")
        return found

    return _field(default, check, values=(True, False))


def choice(default: str, known: Iterable[str]) -> Any:
    """Declares one of the words, in any case. A number may be given for a word: ``acks=1``."""
    words = tuple(known)

    def check(name: str, value: Any) -> str:
        text = str(value).lower() if isinstance(value, str | int) and not isinstance(value, bool) else None
        if text not in words:
            raise _invalid(name, value, f"it must be one of {', '.join(words)}" + _hint(str(value), words))
        return text

    return _field(default, check, values=words)


def choices(default: Sequence[str], known: Iterable[str]) -> Any:
    """Declares a list of some of the words, at least one; or a text that has them with commas."""
    words = tuple(known)

    def check(name: str, value: Any) -> tuple[str, ...]:
        items = tuple(item.strip() for item in value.split(",")) if isinstance(value, str) else tuple(value)
        wrong = [item for item in items if item not in words]
        if wrong or not items:
            raise _invalid(
                name, value, f"a list of some of {', '.join(words)} is expected" + (_hint(str(wrong[0]), words) if wrong else "")
            )
        return items

    return _field(tuple(default), check, values=words)


def text(default: str | None) -> Any:
    """Declares a text; None is allowed only where it is the default."""

    def check(name: str, value: Any) -> str | None:
        if not isinstance(value, str) and not (value is None and default is None):
            raise _invalid(name, value, "expected a string")
        return value

    return _field(default, check)


def texts(default: Sequence[str] = ()) -> Any:
    """Declares a list of texts, or one text that has them with commas."""

    def check(name: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, str) and not all(isinstance(item, str) for item in value or ()):
            raise _invalid(name, value, "expected a list of strings")
        items = value.split(",") if isinstance(value, str) else tuple(value or ())
        return tuple(item.strip() for item in items if item.strip())

    return _field(tuple(default), check)


def secret() -> Any:
    """Declares a text that is never shown, or None."""

    def check(name: str, value: Any) -> Secret | None:
        if value is not None and not isinstance(value, str | Secret):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: expected a string")
        return Secret(value) if isinstance(value, str) else value

    return _field(None, check)


def function(*, is_shown: bool = True, takes: str | None = None) -> Any:
    """Declares a callable, or None; ``takes`` names its one argument. What is given in its place may be a secret: then it is not shown."""

    def check(name: str, value: Any) -> Any:
        if value is not None and not callable(value):
            if not is_shown:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: expected a function")
            method = "serialize" if hasattr(value, "serialize") else "deserialize"
            is_object = takes is not None and hasattr(value, method)
            way_out = f", such as lambda {takes}: it.{method}(topic, {takes})" if is_object else ""
            raise _invalid(name, value, "expected a function" + way_out)
        if takes is not None and value is not None and not _takes_one(value):
            raise _invalid(name, value, f"expected a function of one argument, the {takes}; this one takes {inspect.signature(value)}")
        return value

    return _field(None, check)


def _takes_one(function: Callable[..., Any]) -> bool:
    """True when the function may be called with one argument, or when Python does not know."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True  # some written in C have no signature
    return True


class Settings:
    """Base of the settings classes, which are frozen dataclasses."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _KEYS.update({key_of(name): name for name in cls.__annotations__})

    def __post_init__(self) -> None:
        for name, check in checks_of(type(self)).items():
            object.__setattr__(self, name, check(key_of(name), getattr(self, name)))

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Raises INVALID_CONFIG for a setting that was given and does not fit the others."""


@contextmanager
def by_arguments() -> Iterator[None]:
    """Raises INVALID_CONFIG with the settings by the names of the arguments: a program that is searched for ``linger.ms`` has none."""
    try:
        yield
    except KafkaError as error:
        if error.code != ErrorCode.INVALID_CONFIG:
            raise
        raise KafkaError(error.code, renamed(error.message, _KEYS)) from None


def by_keys(message: str) -> str:
    """Returns the text of an error with the settings by Kafka's names, as files and commands have them."""
    return renamed(message, {name: key for key, name in _KEYS.items()})


def renamed(message: str, names: Mapping[str, str]) -> str:
    """Returns the text with each of these names replaced, where it is a word of its own."""
    return _WORD.sub(lambda found: names.get(found[0], found[0]), message)


def divided(
    kinds: Sequence[type[Settings]], given: Mapping[str, Any], others: Mapping[str, Sequence[type[Settings]]] = MappingProxyType({})
) -> list[Any]:
    """Divides the settings into one object of each kind. INVALID_CONFIG for an unknown setting: with the reason, or the nearest name.

    ``others`` are the settings of other clients, by what these are.
    """
    known = sorted({BROKERS, *(name for kind in kinds for name in checks_of(kind))})
    for name in given:
        if name not in known:
            plain = name.replace(".", "_").replace("-", "_")
            if plain in known or plain == BROKERS:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown setting {name!r}: write it with _, as {plain}")
            text = f"no setting {name!r}: {OTHER_SETTINGS[plain]}" if plain in OTHER_SETTINGS else f"unknown setting {name!r}"
            owners = (other for other, theirs in others.items() if any(plain in checks_of(kind) for kind in theirs))
            whose = next((f": it is one of {other}" for other in owners), "")
            raise KafkaError(ErrorCode.INVALID_CONFIG, text + ("" if plain in OTHER_SETTINGS else whose or _hint(plain, known)))
    with by_arguments():
        made = [kind(**{name: value for name, value in given.items() if name in checks_of(kind)}) for kind in kinds]
        for settings in made:
            settings.check_given(given)
    return made


def checks_of(kind: type[Settings]) -> dict[str, Check]:
    """Returns the settings of one kind, each with its check."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # those derived from Settings are dataclasses
    return {field.name: field.metadata[_CHECK] for field in fields if _CHECK in field.metadata}


def values_of(kind: type[Settings], name: str) -> tuple[object, ...]:
    """Returns what the setting may be: the lowest and the highest number, or the words; empty where any text or function may be given."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # as above
    found: tuple[object, ...] = next(field for field in fields if field.name == name).metadata[_VALUES]
    return found


def key_of(name: str) -> str:
    """Returns Kafka's name of the setting."""
    return name.replace("_", ".")


def _field(default: object, check: Check, *, values: Sequence[object] = ()) -> Any:
    return dataclasses.field(default=default, metadata={_CHECK: check, _VALUES: tuple(values)})


def _invalid(name: str, value: object, way_out: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value!r}: {way_out}")


def _hint(name: str, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]}?" if found else ""
