"""``ottla acl``: list, allow, deny, delete."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.output import bootstrap_option, complain, end_of_plan, format_option, print_rows, with_way_out, yes_option
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, OPERATIONS, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from ottla.client.admin.acls import Acl
    from ottla.sync import Admin

F = TypeVar("F", bound=Callable[..., Any])
COLUMNS: Final = ("principal", "permission", "operation", "resource_type", "resource_name", "pattern_type", "host")
USER: Final = "User:"
WILDCARD: Final = "*"
ANONYMOUS: Final = "ANONYMOUS"
"""The user of a listener that asks for none."""
RESOURCES: Final = (
    ("topic", ResourceType.TOPIC),
    ("group", ResourceType.GROUP),
    ("transactional-id", ResourceType.TRANSACTIONAL_ID),
    ("delegation-token", ResourceType.DELEGATION_TOKEN),
    ("user-principal", ResourceType.USER),
)
PRODUCER: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
"""What a producer needs of topics and of its transactional id, as kafka-acls.sh --producer gives it."""
CONSUMER: Final = {ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE), ResourceType.GROUP: (Operation.READ,)}


def _resource_options(function: F) -> F:
    """Adds an option for each of ``RESOURCES``, ``--cluster``, ``--prefix``."""
    function = click.option("--prefix", is_flag=True, help="The names are the beginnings of names.")(function)
    function = click.option("--cluster", is_flag=True, help="The cluster itself.")(function)
    for name, _ in reversed(RESOURCES):
        option = click.option(f"--{name}", f"{name.replace('-', '_')}s", multiple=True, metavar="NAME", help=f"A {name}; * is every one.")
        function = option(function)
    return function


@click.group()
def acl() -> None:
    """List and change who may do what."""


@acl.command("list")
@_resource_options
@click.option("--principal", help="Only those of this principal: User:alice.")
@bootstrap_option
@format_option
def list_acls(principal: str | None, bootstrap: str, output: str, prefix: bool, cluster: bool, **names: tuple[str, ...]) -> None:
    """List ACLs; for a resource, all that cover it."""
    from ottla.client.admin.acls import AclFilter
    from ottla.sync import Admin

    pattern_type = PatternType.PREFIXED if prefix else PatternType.MATCH
    wanted = [AclFilter(kind, name, principal, pattern_type=pattern_type) for kind, name in _resources(cluster, names)]
    found: set[Acl] = set()
    with Admin(bootstrap, **client_settings()) as admin:
        for one in wanted or [AclFilter(principal=principal)]:
            found.update(admin.describe_acls(one))
    _show(output, "acl list", sorted(found))


def _changing(permission: Permission) -> Callable[[F], F]:
    def options(function: F) -> F:
        function = format_option(bootstrap_option(yes_option(function)))
        if permission is Permission.ALLOW:
            function = click.option("--consumer", is_flag=True, help="What a consumer needs of the topics and the group.")(function)
            function = click.option("--producer", is_flag=True, help="What a producer needs of the topics.")(function)
        names = ", ".join(operation.name.lower() for operation in sorted({one for found in OPERATIONS.values() for one in found}))
        text = f"An operation; may be repeated: all, {names}."
        function = click.option("-o", "--operation", "operations", multiple=True, metavar="OPERATION", help=text)(function)
        function = click.option("--host", "hosts", multiple=True, default=("*",), show_default=True, help="An address.")(function)
        return _resource_options(click.argument("principals", nargs=-1, required=True)(function))

    return options


@acl.command()
@_changing(Permission.ALLOW)
def allow(producer: bool, consumer: bool, **asked: Any) -> None:
    """Allow PRINCIPALS (User:alice) operations on resources.

    \b
    ottla acl allow User:alice --producer --topic orders --yes
    ottla acl allow User:bob --consumer --topic orders --group billing --yes
    ottla acl allow User:carol -o read --topic logs- --prefix --yes
    """
    _create(Permission.ALLOW, [given for is_asked, given in ((producer, PRODUCER), (consumer, CONSUMER)) if is_asked], **asked)


@acl.command()
@_changing(Permission.DENY)
def deny(**asked: Any) -> None:
    """Deny PRINCIPALS operations, whatever allows them besides."""
    _create(Permission.DENY, [], **asked)


def _create(
    permission: Permission,
    roles: Iterable[Any],
    *,
    principals: tuple[str, ...],
    operations: tuple[str, ...],
    hosts: tuple[str, ...],
    yes: bool,
    bootstrap: str,
    output: str,
    prefix: bool,
    cluster: bool,
    **names: tuple[str, ...],
) -> None:
    from ottla.client.admin.acls import Acl
    from ottla.sync import Admin

    resources = _resources(cluster, names)
    if not resources:
        raise click.UsageError("no resource: give --topic, --group, --transactional-id, --delegation-token, --user-principal or --cluster")
    wanted = [
        Acl(kind, name, principal, operation, permission, host, PatternType.PREFIXED if prefix else PatternType.LITERAL)
        for principal in map(_principal, principals)
        for kind, name in resources
        for operation in _operations(kind, operations, roles)
        for host in hosts
    ]
    if not wanted:
        raise click.UsageError("no operation: give --operation" + (", --producer or --consumer" if permission is Permission.ALLOW else ""))
    with Admin(bootstrap, **client_settings()) as admin:
        if not yes:
            _show(output, "acl plan", wanted)
            _warn_of_absent(admin, wanted)
            end_of_plan("nothing was changed")
        results = admin.create_acls(wanted)
        made = [one for one, error in results.items() if error is None]
        _warn_of_absent(admin, made)
    if made or output == "json" or not results:
        _show(output, "acl create", made)
    _report({str(error): error for error in results.values() if error is not None}.values())


def _warn_of_absent(admin: Admin, wanted: Iterable[Acl]) -> None:
    """Warns of users and topics that do not exist, which may be names that were mistyped. What cannot be seen is not warned of."""
    literal = [one for one in wanted if one.pattern_type is PatternType.LITERAL]
    topics = {one.resource_name for one in literal if one.resource_type is ResourceType.TOPIC} - {WILDCARD}
    names = {one.principal.removeprefix(USER) for one in wanted if one.principal.startswith(USER)} - {WILDCARD, ANONYMOUS}
    with contextlib.suppress(KafkaError):
        users = admin.describe_users()
        for name in sorted(names - users.keys()) if users else ():
            adds = f"`ottla user add {name}` makes one; of users by TLS certificates, OAuth or other logins the cluster has no list"
            complain(f"warning: there is no SCRAM user {name}: {adds}")
    with contextlib.suppress(KafkaError):
        for topic in sorted(topics - admin.list_topics().keys()) if topics else ():
            complain(f"warning: there is no topic {topic} yet, or it may not be seen; `ottla topic list` shows the topics")


@acl.command()
@click.argument("principals", nargs=-1, required=True)
@_resource_options
@yes_option
@bootstrap_option
@format_option
def delete(
    principals: tuple[str, ...], yes: bool, bootstrap: str, output: str, prefix: bool, cluster: bool, **names: tuple[str, ...]
) -> None:
    """Delete the ACLs of PRINCIPALS: all, or those on named resources."""
    from ottla.client.admin.acls import AclFilter
    from ottla.sync import Admin

    pattern_type = PatternType.ANY if not any(names.values()) and not cluster else PatternType.PREFIXED if prefix else PatternType.LITERAL
    resources: list[tuple[ResourceType, str | None]] = [*_resources(cluster, names)] or [(ResourceType.ANY, None)]
    filters = [
        AclFilter(kind, name, principal, pattern_type=pattern_type) for principal in map(_principal, principals) for kind, name in resources
    ]
    with Admin(bootstrap, **client_settings()) as admin:
        found = sorted({one for wanted in filters for one in admin.describe_acls(wanted)})
        if not found:
            text = f"no ACL of {', '.join(principals)} matches, and nothing was deleted"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"{text}; `ottla acl list --principal {principals[0]}` shows what there is")
        if not yes:
            _show(output, "acl plan", found)
            end_of_plan("would delete these")
        deleted = {one for each in admin.delete_acls(filters) for one in each}
    _show(output, "acl delete", sorted(deleted))


def _resources(cluster: bool, names: dict[str, tuple[str, ...]]) -> list[tuple[ResourceType, str]]:
    found = [(kind, name) for option, kind in RESOURCES for name in names[f"{option.replace('-', '_')}s"]]
    return found + ([(ResourceType.CLUSTER, CLUSTER)] if cluster else [])


def _principal(text: str) -> str:
    kind, colon, name = text.partition(":")
    if text.upper() in Operation.__members__:
        raise click.UsageError(f"{text!r} is an operation: write -o {text}")
    if not (kind and colon):
        raise click.UsageError(f"{text!r} lacks its type: write User:{name or kind or 'alice'}")
    if not name:
        raise click.UsageError(f"{text!r} lacks its name: write {kind}:alice")
    return text


def _operations(kind: ResourceType, given: tuple[str, ...], roles: Iterable[Any]) -> list[Operation]:
    found: dict[Operation, None] = {}
    for text in given:
        operation = Operation.__members__.get(text.upper().replace("-", "_"), Operation.UNKNOWN)
        if operation not in {Operation.ALL, *OPERATIONS[kind]}:
            known = ", ".join(one.name.lower() for one in sorted(OPERATIONS[kind]))
            raise click.UsageError(f"{text!r} is no operation on a {kind.name.lower()}; all, {known} are")
        found[operation] = None
    for role in roles:
        found.update(dict.fromkeys(role.get(kind, ())))
    return list(found)


def _show(output: str, command: str, acls: Iterable[Acl]) -> None:
    rows = [
        (
            one.principal, one.permission.name.lower(), one.operation.name.lower(), one.resource_type.name.lower(), one.resource_name,
            one.pattern_type.name.lower(), one.host,
        )
        for one in acls
    ]  # fmt: skip
    print_rows(output, command, COLUMNS, rows)


def _report(errors: Iterable[KafkaError]) -> None:
    failed = list(errors)
    for error in failed:
        complain(with_way_out(error))
    if failed:
        sys.exit(1)
