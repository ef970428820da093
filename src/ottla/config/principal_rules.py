"""``ssl.principal.mapping.rules``: what a certificate's subject becomes the name of (KIP-371).

``RULE:pattern/replacement/`` with an optional ``L`` or ``U`` for the case, or ``DEFAULT`` for the subject itself, with commas between. The
first rule whose pattern matches the whole subject counts. What the pattern then finds in the subject is replaced, as by Java's
``replaceAll``: where its end is lazy (``CN=(.*?),OU=.*?``) that is less than the whole, and the rest stays in the name. Java's regular
expressions have constructs that Python's lack: they are refused.
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
REST_LENGTH_MAX: Final = 100
"""Of what follows the first part that a pattern finds: each of its characters is a place to look for the next one."""
NO_NAME: Final = f"no rule of {RULES} is for the subject of its certificate, or it has more than {MATCHED_LENGTH_MAX} characters"
NO_SUBJECT: Final = "its certificate has no subject, which would be its name: issue one with a subject, as CN=NAME"
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_OTHER_IN_JAVA: Final = re.compile(r"&&|\\[ZzGQERhHvVXpPbk]|\(\?<[a-zA-Z]|\[\[|\(\?[a-z]*[dux]")
_DOT_IS_ALL: Final = re.compile(r"\(\?[a-z]*s")
_DOTS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\\\]])*\]|\.", re.DOTALL)
"""A dot, or what may have a dot in it that is none."""
_NO_LINE_END: Final = "[^\n\r\x85\u2028\u2029]"
_NO_GROUP: Final = re.compile(r"^(?:\\.|[^\\$]|\$\d)*(\$(?!\d).?)", re.DOTALL)


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
            if pattern.fullmatch(subject) is not None:
                name = _replaced(pattern, replacement, subject)
                return name if name is None else name.lower() if case == "L" else name.upper() if case == "U" else name
        return None


def why_unnamed(subject: str | None) -> str:
    """Returns why a client with this subject has no name."""
    return NO_NAME if subject else NO_SUBJECT


def _replaced(pattern: re.Pattern[str], replacement: str, subject: str) -> str | None:
    """Replaces all that the pattern finds, as Java does: after an empty match it goes on at the next character. None for a long rest."""
    name, end, position = "", 0, 0
    while position <= len(subject) and (found := pattern.search(subject, position)) is not None:
        name += subject[end : found.start()] + found.expand(replacement)
        end = found.end()
        if len(subject) - end > REST_LENGTH_MAX:
            return None
        position = end + (found.start() == end)
    return name + subject[end:]


def _pattern(text: str) -> re.Pattern[str]:
    found = _OTHER_IN_JAVA.search(text)
    if found is not None:
        raise _refused(f"has {found[0]!r} in a pattern, which Python's regular expressions do not have, or read otherwise")
    text = text.replace("\\/", "/")
    if not _DOT_IS_ALL.search(text):  # to Java's dot more characters than \n end a line
        text = _DOTS.sub(lambda part: _NO_LINE_END if part[0] == "." else part[0], text)
    try:
        return re.compile(text, re.ASCII)
    except re.error as error:
        raise _refused(f"has a pattern that cannot be read: {error}") from None


def _replacement(text: str) -> str:
    """Returns the replacement in Python's form: ``$1`` is ``\\g<1>``, and a backslash takes the next character as it is."""
    wrong = _NO_GROUP.search(text)
    if wrong is not None:
        raise _refused(f"has a replacement with {wrong[1]!r}, which names no group: $1 is the first, and \\$ the character")
    out = ""
    for part in re.finditer(r"\$(\d)|\\(.)|([^\\])", text, re.DOTALL):
        out += f"\\g<{part[1]}>" if part[1] else (part[2] or part[3]).replace("\\", "\\\\")
    return out


def _groups(replacement: str) -> int:
    return max(map(int, re.findall(r"\\g<(\d)>", replacement)), default=0)


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{RULES} {why}")
