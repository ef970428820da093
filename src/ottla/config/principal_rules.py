"""``ssl.principal.mapping.rules``: what a certificate's subject becomes the name of (KIP-371).

``RULE:pattern/replacement/`` with an optional ``L`` or ``U`` for the case, or ``DEFAULT`` for the subject itself, with commas between. The
first rule whose pattern matches the whole subject counts. Java's regular expressions have constructs that Python's lack: they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ottla.errors import ErrorCode, KafkaError

RULES: Final = "ssl.principal.mapping.rules"
SUBJECT_LENGTH_MAX: Final = 1_000
MATCHED_LENGTH_MAX: Final = 400
"""Of a subject that patterns are tried on: with several ``.*`` in one they take time that grows with its third or fourth power."""
NO_NAME: Final = f"no rule of {RULES} is for the subject of its certificate, or it has more than {MATCHED_LENGTH_MAX} characters"
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_OTHER_IN_JAVA: Final = re.compile(r"&&|\\[ZzGQERhHvVXpPbk]|\(\?<[a-zA-Z]|\[\[|\(\?[a-z]*[dux]")


class PrincipalRules:
    """The rules in their order."""

    def __init__(self, rules: Sequence[tuple[re.Pattern[str] | None, str, str]]) -> None:
        self._rules = rules

    @classmethod
    def parse(cls, text: str) -> PrincipalRules:
        """Parses the rules. INVALID_CONFIG for what is no rule, or means something else in Java."""
        rules: list[tuple[re.Pattern[str] | None, str, str]] = []
        position = 0
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None or found.end() == position:
                raise _refused(
                    f"cannot be read from {text[position : position + 60]!r} on: RULE:pattern/replacement/[LU] or DEFAULT is expected"
                )
            position = found.end()
            rules.append((None, "", "") if found[1] else (_pattern(found[2]), _replacement(found[3]), found[4]))
            if rules[-1][0] is not None and _groups(rules[-1][1]) > rules[-1][0].groups:
                raise _refused(f"has a rule whose replacement names a group that its pattern does not have: {found[0][:80]!r}")
        return cls(rules or [(None, "", "")])

    def name_of(self, subject: str) -> str | None:
        """Returns the name; None when no rule matches, or the subject is too long for it: who it is cannot be said."""
        for pattern, replacement, case in self._rules:
            if len(subject) > (SUBJECT_LENGTH_MAX if pattern is None else MATCHED_LENGTH_MAX):
                return None
            if pattern is None:
                return subject
            found = pattern.fullmatch(subject)
            if found is not None:
                name = found.expand(replacement)
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        return None


def _pattern(text: str) -> re.Pattern[str]:
    found = _OTHER_IN_JAVA.search(text)
    if found is not None:
        raise _refused(f"has {found[0]!r} in a pattern, which Python's regular expressions do not have, or read otherwise")
    try:
        return re.compile(text.replace("\\/", "/"), re.ASCII)
    except re.error as error:
        raise _refused(f"has a pattern that cannot be read: {error}") from None


def _replacement(text: str) -> str:
    """Returns the replacement in Python's form: ``$1`` is ``\\g<1>``, and a backslash takes the next character as it is."""
    out = ""
    for part in re.finditer(r"\$(\d)|\\(.)|([^\\])", text, re.DOTALL):
        out += f"\\g<{part[1]}>" if part[1] else (part[2] or part[3]).replace("\\", "\\\\")
    return out


def _groups(replacement: str) -> int:
    return max(map(int, re.findall(r"\\g<(\d)>", replacement)), default=0)


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{RULES} {why}")
