"""Which right a command lacked that was refused: the operation, the resource and the ACL that allows it.

An answer has a code for each type of resource, and no operation: what the command asked for says the rest. An operation on a topic or a
group includes DESCRIBE, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import click

from ottla.cli.client_settings import command_context, is_of_issuer, principal_of, token_of, user_of, words_of
from ottla.errors import ErrorCode, KafkaError

TOPIC, GROUP, CLUSTER, TRANSACTION, OWNER = "topic", "group", "cluster", "transactional-id", "user-principal"
_KINDS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: TOPIC,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: GROUP,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: CLUSTER,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TRANSACTION,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: OWNER,
}
_PARAMETERS: Final = {
    TOPIC: ("name", "names", "topics", "topic"),
    GROUP: ("group", "group_id", "group_ids"),
    TRANSACTION: ("transactional_ids",),
    OWNER: ("owner",),
}
_IN_TEXT: Final = {
    TOPIC: re.compile(r"\btopic '([^']+)'"),
    GROUP: re.compile(r"\bgroup '([^']+)'"),
    TRANSACTION: re.compile(r"\btransactional id '([^']+)'"),
}
_TAKES: Final = re.compile(r"\btakes ([A-Z_]+(?:(?:, | and )[A-Z_]+)*)$")
"""What an error's text says of the operations, of a command that asks for more than one thing."""
_OPERATIONS: Final[Mapping[tuple[str, str], str]] = {
    ("acl list", CLUSTER): "describe",
    ("broker describe", CLUSTER): "describe",
    ("broker logdirs", CLUSTER): "describe",
    ("cluster health", CLUSTER): "describe",
    ("cluster status", CLUSTER): "describe",
    ("config diff", CLUSTER): "describe-configs",
    ("config diff", TOPIC): "describe-configs",
    ("config get", CLUSTER): "describe-configs",
    ("config get", TOPIC): "describe-configs",
    ("config set", CLUSTER): "alter-configs",
    ("config set", TOPIC): "alter-configs",
    ("consume", GROUP): "read",
    ("consume", TOPIC): "read",
    ("group delete", GROUP): "delete",
    ("group delete-offsets", GROUP): "delete",
    ("group delete-offsets", TOPIC): "read",
    ("group import", GROUP): "read",
    ("group import", TOPIC): "read",
    ("group seek", GROUP): "read",
    ("group seek", TOPIC): "read",
    ("partition moves", CLUSTER): "describe",
    ("partition unthrottle", CLUSTER): "alter-configs",
    ("partition unthrottle", TOPIC): "alter-configs",
    ("produce", CLUSTER): "idempotent-write",
    ("produce", TOPIC): "write",
    **{(f"pipeline {word}", GROUP): "read" for word in ("run", "submit")},
    **{(f"pipeline {word}", TRANSACTION): "write" for word in ("run", "submit")},
    **{(f"pipeline {word}", CLUSTER): "idempotent-write" for word in ("run", "submit")},
    ("pipeline reset", GROUP): "delete",
    ("pipeline reset", TOPIC): "delete",
    ("pipeline restore", TOPIC): "read",
    ("pipeline restore", TRANSACTION): "write",
    ("pipeline state", TOPIC): "read",
    ("producer list", TOPIC): "read",
    ("quorum", CLUSTER): "describe",
    ("quota list", CLUSTER): "describe-configs",
    ("quota set", CLUSTER): "alter-configs",
    ("topic add-partitions", TOPIC): "alter",
    ("topic alter", TOPIC): "alter-configs",
    ("topic create", TOPIC): "create",
    ("topic delete", TOPIC): "delete",
    ("topic delete-records", TOPIC): "delete",
    ("txn fence", TRANSACTION): "write",
    ("user list", CLUSTER): "describe",
}
UNNAMED: Final = "the user of this command (User:NAME: brokers log its principal, at authorization_denied)"
_OTHERWISE: Final = {TOPIC: "describe", GROUP: "describe", TRANSACTION: "describe", CLUSTER: "alter", OWNER: "create-tokens"}


def missing_right(error: KafkaError) -> str | None:
    """Returns the end of the sentence about a refusal, also of the login: what is missing, and the way out. None for other errors."""
    if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED and error.message.startswith("authentication failed"):
        return _of_login()
    kind, context = _KINDS.get(ErrorCode(error.code)), command_context()
    if kind is None:
        return None
    command = "" if context is None else words_of(context)
    if not command:
        return "; who may alter the cluster sees what is allowed by `ottla acl list`, and allows more by `ottla acl allow`"
    takes = _TAKES.search(error.message)
    operations = [_OPERATIONS.get((command, kind), _OTHERWISE[kind])]
    if takes is not None:
        operations = [word.lower().replace("_", "-") for word in re.findall("[A-Z_]+", takes[1])]
    names = _names(context, kind, error.message)
    user = principal_of()
    who, right = user or UNNAMED, " or ".join(operations).upper().replace("-", "_").replace(" OR ", " or ")
    if kind != CLUSTER and not names:
        return f": {who} lacks {right} on a {kind.replace('-', ' ')}; who may alter the cluster sees what is allowed by `ottla acl list`"
    resource = "the cluster" if kind == CLUSTER else f"{kind.replace('-', ' ')} {', '.join(names)}"
    options = " --cluster" if kind == CLUSTER else "".join(f" --{kind} {name}" for name in names)
    allow = f"`ottla acl allow {user or 'User:NAME'} {' '.join(f'-o {operation}' for operation in operations)}{options} --yes`"
    lacks = f": {who} lacks {right} on {resource}"
    return f"{lacks}; who may alter the cluster allows it by {allow}, unless an ACL denies it (`ottla acl list`)"


def _of_login() -> str:
    """Returns the end of the sentence about a login that failed: whose it was, and the way to one that works."""
    user, token, file = user_of(), token_of(), "the file of --command-config (or OTTLA_COMMAND_CONFIG)"
    if token is not None:
        return f"; the login was by delegation token {token} of {file}, which may have ended; its owner sees it by `ottla token list`"
    if is_of_issuer():
        return f"; the login was by a token of an issuer, as {file} has it; the broker's log says why (authentication_failed)"
    if user is None:
        return f"; {file} names the user; who may alter the cluster sees its users by `ottla user list`"
    whose = f"; the login was that of {user}, whose password is in {file}"
    ways = f"sees the users by `ottla user list`, and sets a password by `ottla user add {user.removeprefix('User:')}`"
    return f"{whose}; who may alter the cluster {ways}"


def _names(context: click.Context | None, kind: str, message: str) -> list[str]:
    """Returns which resources of that type were refused: those in the error's text, else all that the command was given."""
    given: dict[str, Any] = {} if context is None else context.params
    found: list[str] = []
    for parameter in _PARAMETERS.get(kind, ()):
        value = given.get(parameter)
        found += [value] if isinstance(value, str) else value if isinstance(value, tuple) else []
    found = [name for text in found for name in text.split(",") if not name.startswith("^")]  # of --topics a,b
    mentioned = [name for name in found if f"'{name}'" in message or message.startswith(f"{name}-")]
    return mentioned or (_IN_TEXT[kind].findall(message) if kind in _IN_TEXT else []) or found
