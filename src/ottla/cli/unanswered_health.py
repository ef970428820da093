"""What ``ottla cluster health`` says of a broker that serves, as its cluster says, and does not answer the one who looks."""

from __future__ import annotations

from typing import Final

from ottla.cli.starting import HOW_TO_START
from ottla.errors import ErrorCode, KafkaError, OttlaError

_LOGIN: Final = frozenset({ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE})
_NONE_LISTENS: Final = "Connect call failed"  # asyncio's words for a port that refuses


def is_login(error: OttlaError) -> bool:
    """Returns whether the broker runs and did not let the one who looks in, by TLS or SASL: it may well answer the other brokers."""
    return isinstance(error, KafkaError) and error.code in _LOGIN


def shut_by(broker: int, serves: str, why: str, *, is_controller: bool) -> tuple[str, str]:
    """Returns the problem and the way out of a broker that refuses the login; other nodes may meet the same at the active controller."""
    certificate = "docs/security.md, Certificates that change, has how it gets another certificate"
    nodes = "; it is the active controller, to which other nodes do not return once their connections end" * is_controller
    return f"broker {broker} {serves}, and lets no client in from here: {why}", f"other clients meet the same; {certificate}{nodes}"


def unanswered_by(broker: int, serves: str, why: str) -> tuple[str, str]:
    """Returns the problem and the way out. ``serves`` is what the cluster says of it, and ``why`` the error of the one who looked."""
    if _NONE_LISTENS in why:
        problem = f"broker {broker} {serves}, and nothing listens at its address: {why}"
        return problem, f"start broker {broker} ({HOW_TO_START.format(broker)}), if its process has ended"
    way_out = "see whether it is overloaded, stopped (SIGSTOP) or cut off from here: `ottla cluster status` says what others see"
    return f"broker {broker} {serves}, and does not answer{f': {why}' * bool(why)}", way_out
