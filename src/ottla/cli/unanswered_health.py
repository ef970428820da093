"""What ``ottla cluster health`` says of a broker that does not answer: one that serves, as its cluster says, or one that is fenced."""

from __future__ import annotations

from collections.abc import Mapping
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


def unanswered_by(broker: int, serves: str, why: str, pid: int | None = None) -> tuple[str, str]:
    """Returns the problem and the way out. ``serves`` is what the cluster says of it, and ``why`` the error of the one who looked.

    ``pid`` is that of its process, where it is one of this machine that SIGSTOP has stopped.
    """
    if pid is not None:
        return f"broker {broker} {serves}, and does not answer: its process {pid} is stopped (SIGSTOP)", continued(broker, pid)
    if _NONE_LISTENS in why:
        problem = f"broker {broker} {serves}, and nothing listens at its address: {why}"
        return problem, f"start broker {broker} ({HOW_TO_START.format(broker)}), if its process has ended"
    way_out = "see whether it is overloaded, stopped (SIGSTOP) or cut off from here: `ottla cluster status` says what others see"
    return f"broker {broker} {serves}, and does not answer{f': {why}' * bool(why)}", way_out


def continued(broker: int, pid: int) -> str:
    """Returns the way out of a process of this machine that SIGSTOP has stopped."""
    return f"continue broker {broker} (`kill -CONT {pid}`)"


def brought_back(brokers: list[int], paused: Mapping[int, int], hanging: Mapping[int, str]) -> str:
    """Returns what brings brokers back that do not serve: a start, where the process does not live.

    ``paused`` has the processes of this machine that SIGSTOP has stopped, and ``hanging`` addresses that take connections.
    """
    ways = [continued(broker, paused[broker]) for broker in brokers if broker in paused]
    for broker in brokers:
        if broker in hanging and broker not in paused:
            causes = "is starting, is stopped (SIGSTOP), hangs, or cannot reach the controller: its log says which"
            ways.append(
                f"look at broker {broker} (`ottla cluster status`): its process takes connections at {hanging[broker]}, and {causes}"
            )
    if ended := [broker for broker in brokers if broker not in paused and broker not in hanging]:
        numbers = "NODE" if len(ended) > 1 else str(ended[0])
        ways.append(f"start {named(ended)} ({HOW_TO_START.format(numbers)})")
    return "; ".join(ways)


def named(ids: list[int]) -> str:
    return f"broker{'s'[: len(ids) != 1]} {', '.join(map(str, ids))}"
