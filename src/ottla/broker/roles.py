"""Which parts of a cluster this process plays, as a KRaft properties file says it.

A broker is its own controller, and the only voter of its metadata log: nothing has to be said, and what a file for one
combined node says is taken. A file for a node of a larger quorum is refused rather than half obeyed.

Source: KIP-500, KIP-853 (controller.quorum.bootstrap.servers).
"""

from __future__ import annotations

import re
from enum import StrEnum

from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError


class Role(StrEnum):
    """What a process is in its cluster, and whom a listener is for."""

    BROKER = "broker"
    CONTROLLER = "controller"


_VOTER = re.compile(r"(\d+)@(.+):(\d+)")


def check_roles(config: BrokerConfig) -> None:
    """The configuration is that of a broker, or of one combined broker and controller; else INVALID_CONFIG."""
    roles = config["process.roles"]
    if roles is not None and "broker" not in roles:
        raise _refused(f"process.roles={','.join(roles)}", "does not include broker; `broker,controller` is a combined node")
    voters = config["controller.quorum.voters"]
    if len(voters) > 1:
        raise _refused("controller.quorum.voters", f"lists {len(voters)} voters; this node must be the only one")
    for voter in voters:
        matched = _VOTER.fullmatch(voter)
        if matched is None:
            raise _refused(f"controller.quorum.voters={voter}", "is not of the form id@host:port")
        if int(matched[1]) != config.node_id:
            raise _refused(f"controller.quorum.voters={voter}", f"is not this node, whose node.id is {config.node_id}")
    if len(config["controller.quorum.bootstrap.servers"]) > 1:
        raise _refused("controller.quorum.bootstrap.servers", "lists several servers; this node must be the only voter")


def _refused(what: str, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{what} {why}")
