"""What a list says of a user who may not see all of it: brokers leave out what the user may not describe, and answer without an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.client_settings import principal_of
from ottla.cli.missing_rights import GROUP, UNNAMED
from ottla.cli.output import complain
from ottla.messages.acl_codes import Operation

if TYPE_CHECKING:
    from ottla.sync import Admin


def note_what_is_seen(admin: Admin, kind: str) -> None:
    """Says on standard error that a list has only what the user may describe, of a user who may not describe the cluster.

    Brokers answer such a list without an error, and an empty one would say that there is nothing.
    """
    allowed = admin.describe_cluster(include_authorized_operations=True).authorized_operations or ()
    if Operation.DESCRIBE in allowed:
        return
    user = principal_of()
    right = "--cluster" if kind == GROUP else f"--{kind} '*'"
    way = f"`ottla acl allow {user or 'User:NAME'} -o describe {right} --yes` shows all of them"
    complain(f"only what {user or UNNAMED} may describe is listed, and brokers do not say what else there is; {way}")
