"""Who may do what: the authorizer, and what it takes from the node's own file and from nowhere else (as Kafka's)."""

from __future__ import annotations

import ipaddress
from typing import Any, Final, Protocol

from ottla.config.definition import ConfigKey, boolean, string
from ottla.errors import ErrorCode, KafkaError

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's class for clusters with a quorum. Its name is accepted as that of its rules: no class is loaded."""
IN_ZOOKEEPER: Final = "kafka.security.authorizer.AclAuthorizer"
"""The same in ZooKeeper mode, where the ACLs are znodes."""

KEYS: Final[tuple[ConfigKey, ...]] = (
    string(
        "authorizer.class.name",
        "",
        f"Who authorizes requests: {STANDARD}, which goes by ACLs ({IN_ZOOKEEPER} in ZooKeeper mode), or empty for no one.",
        choices=("", STANDARD, IN_ZOOKEEPER),
    ),
)
OWN_KEYS: Final[tuple[ConfigKey, ...]] = (
    string("super.users", "", "Principals that may do everything, with semicolons between them: User:admin;User:broker.", is_internal=True),
    boolean("allow.everyone.if.no.acl.found", False, "Whether everyone may do what no ACL is about.", is_internal=True),
    string(
        "authorizer.zookeeper.url",
        "",
        "Another ZooKeeper with the ACLs, which is refused: they are where the cluster is.",
        is_internal=True,
    ),
)
"""Kafka's authorizer reads them beside its reference."""


def super_users(text: str) -> frozenset[str]:
    """Returns the principals, as they are written; INVALID_CONFIG for one that is none."""
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
    """Raises INVALID_CONFIG for what the operator would believe to protect the node, and what nothing reads."""
    super_users(config["super.users"])
    chosen = config["authorizer.class.name"]
    if chosen:
        _check_home(chosen, is_in_zookeeper=bool(config["zookeeper.connect"]))
    admin = config["ottla.admin.listener"] or ""
    if chosen and not admin.startswith("https://") and not _is_loopback(admin):
        text = "would show everybody who reaches it what ACLs protect; give it a loopback address, or none, or https://HOST:PORT"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"ottla.admin.listener={config['ottla.admin.listener']} {text}")
    for name in ("super.users", "allow.everyone.if.no.acl.found"):
        if config[name] and not chosen:
            own = IN_ZOOKEEPER if config["zookeeper.connect"] else STANDARD
            text = f"{name} is set, and would protect nothing: set authorizer.class.name={own}, too"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def _check_home(chosen: str, *, is_in_zookeeper: bool) -> None:
    """Checks the name against the place where ACLs are kept: the other name would mean another set of ACLs."""
    own = IN_ZOOKEEPER if is_in_zookeeper else STANDARD
    if chosen != own:
        where = (
            "in ZooKeeper mode (zookeeper.connect), ACLs are znodes" if is_in_zookeeper else "with a quorum, ACLs are in its metadata log"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"authorizer.class.name={chosen}: {where}; set it to {own}")


def _is_loopback(address: str) -> bool:
    """True when the host of ``host:port`` is loopback, as it is without a host."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host in ("", "localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
