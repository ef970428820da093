"""Regular expressions of clients are RE2's: their time grows with the text and no faster, so that none keeps the broker busy.

RE2 is loaded when the first one comes. INVALID_REGULAR_EXPRESSION for what it does not know, and where it cannot be loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError

PATTERN_LENGTH_MAX: Final = 1000


def matcher(pattern: str) -> Callable[[str], Any]:
    """Returns a test whether a whole text matches."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"a pattern has at most {PATTERN_LENGTH_MAX} characters")
    try:
        import re2
    except ImportError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"this broker has no google-re2 for regular expressions: {error}") from error
    options = re2.Options()
    options.log_errors = False
    try:
        match: Callable[[str], Any] = re2.compile(pattern, options=options).fullmatch
    except re2.error as error:
        [why, *_] = error.args
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"the pattern is no regular expression: {text}") from error
    return match
