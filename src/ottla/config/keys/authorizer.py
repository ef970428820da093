"""Who may do what: the authorizer, and what it takes from the node's own file and from nowhere else (as Kafka's)."""

from __future__ import annotations

import ipaddress
from typing import Any, Final, Protocol

from ottla.config.definition import ConfigKey, boolean, string
from ottla.errors import ErrorCode, KafkaError

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's class for clusters with a quorum. Its name is accepted as that of its rules: no class is loaded."""


KEYS: Final[tuple[ConfigKey, ...]] = (
    string(
        "authorizer.class.name",
        "",
        f"Who authorizes requests: {STANDARD}, which goes by ACLs, or empty for no one.",
        choices=("", STANDARD),
    ),
)
OWN_KEYS: Final[tuple[ConfigKey, ...]] = (
    string("super.users", "", "Principals that may do everything, with semicolons between them: User:admin;User:broker.", is_internal=True),
    boolean("allow.everyone.if.no.acl.found", False, "Whether everyone may do what no ACL is about.", is_internal=True),
)
"""Kafka's authorizer reads them beside its reference."""


def super_users(text: str) -> frozenset[str]:
    """The principals, as they are written; INVALID_CONFIG for one that is none."""
    found = frozenset(part.strip() for part in text.split(";") if part.strip())
    for principal in sorted(found):
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name) or ("," in name and f",{kind}:" in name):
            way_out = "a type and a name are expected, as in User:admin, and semicolons between several"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"super.users: {principal[:100]!r} is no principal: {way_out}")
    return found


class Values(Protocol):
    """The values in force."""

    def __getitem__(self, name: str) -> Any: ...


def check(config: Values) -> None:
    """INVALID_CONFIG for what the operator would believe to protect the node, and what nothing reads."""
    super_users(config["super.users"])
    chosen = config["authorizer.class.name"]
    if chosen and config["zookeeper.connect"]:
        way_out = "ACLs are not supported in ZooKeeper mode yet; remove it, and let only trusted hosts reach the listeners"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"authorizer.class.name={chosen} would protect nothing: {way_out}")
    admin = config["ottla.admin.listener"] or ""
    if chosen and not admin.startswith("https://") and not _is_loopback(admin):
        text = "would show everybody who reaches it what ACLs protect; give it a loopback address, or none, or https://HOST:PORT"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"ottla.admin.listener={config['ottla.admin.listener']} {text}")
    for name in ("super.users", "allow.everyone.if.no.acl.found"):
        if config[name] and not chosen:
            text = f"{name} is set, and would protect nothing: set authorizer.class.name={STANDARD}, too"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def _is_loopback(address: str) -> bool:
    """Of ``host:port``; without a host it is loopback."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host in ("", "localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
