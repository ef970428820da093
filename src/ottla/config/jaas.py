"""``sasl.jaas.config``: one login module with its options, as Kafka's files have it.

::

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="..." user_alice="...";

A module's name chooses a mechanism of ottla's own; no class is loaded. Values are quoted with ``"`` or ``'`` (a backslash escapes the next
character), or single words. Source: Kafka's JaasConfig, Java's login configuration files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from ottla.errors import ErrorCode, KafkaError
from ottla.types import Secret

JAAS: Final = "sasl.jaas.config"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""SASL mechanisms by name and password, for clients and nodes."""
SERVER_MECHANISMS: Final = (*MECHANISMS, "OAUTHBEARER")
"""SASL mechanisms that listeners may offer."""
TEXT_LENGTH_MAX: Final = 1 << 20
_PACKAGE: Final = "org.apache.kafka.common.security."


class LoginModule(StrEnum):
    """The login modules that are known, by the names that Kafka's files have."""

    PLAIN = f"{_PACKAGE}plain.PlainLoginModule"
    SCRAM = f"{_PACKAGE}scram.ScramLoginModule"
    OAUTHBEARER = f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule"

    @classmethod
    def of_mechanism(cls, mechanism: str) -> LoginModule:
        return cls.SCRAM if mechanism.startswith("SCRAM-") else cls(f"{cls[mechanism]}")


class Login(Struct, frozen=True):
    """A login module with its options, all of which are kept as secrets."""

    module: LoginModule
    options: Mapping[str, Secret]

    def option(self, name: str) -> str | None:
        found = self.options.get(name)
        return None if found is None else found.reveal()


_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/ | (?P<word>[\w$.\-]+) | (?P<sign>[=;])
    | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)'""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def parse_jaas(text: str) -> Login:
    """Returns the one login module of the text. INVALID_CONFIG, without the text's values, when it cannot be read, or is not known."""
    if len(text) > TEXT_LENGTH_MAX:
        raise _refused(f"is longer than {TEXT_LENGTH_MAX} characters")
    tokens = list(_tokens(text))
    if not tokens or tokens[0][0] != "word":
        raise _refused("does not begin with the name of a login module")
    module = tokens[0][1]
    if len(tokens) < 2 or tokens[1][1].lower() not in _FLAGS:
        raise _refused("has no control flag after the login module: write 'required'")
    options: dict[str, Secret] = {}
    position = 2
    while position < len(tokens) and tokens[position] != ("sign", ";"):
        name, equals, value = (*tokens[position : position + 3], ("", ""), ("", ""))[:3]
        if name[0] != "word" or equals != ("sign", "=") or value[0] not in ("word", "quoted"):
            raise _refused(f'has no option of the form name="value" at its token {position + 1}')
        if name[1] in options:
            raise _refused(f"has the option {name[1][:80]} twice")
        options[name[1]] = Secret(value[1])
        position += 3
    if position == len(tokens):
        raise _refused("does not end with ';'")
    if position + 1 < len(tokens):
        raise _refused("has more than one login module")
    if module not in LoginModule.__members__.values():
        known = " and ".join(LoginModule)
        raise _refused(f"names the login module {module[:120]}, which is not supported; {known} are")
    return Login(LoginModule(module), options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _refused(f"cannot be read from character {position + 1} on: a quote is not closed, or a value needs quotes")
        position = found.end()
        if found["word"] is not None:
            yield "word", found["word"]
        elif found["sign"] is not None:
            yield "sign", found["sign"]
        else:
            quoted = found["double"] if found["double"] is not None else found["single"]
            if quoted is not None:
                yield "quoted", re.sub(r"\\(.)", lambda escape: _ESCAPED.get(escape[1], escape[1]), quoted, flags=re.DOTALL)


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{JAAS} {why}")
