"""``ottla token``: create, list, renew, expire delegation tokens. A token's HMAC, which is its password, is never an argument: tokens are
named by their ids.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.output import bootstrap_option, end_of_plan, format_option, print_rows, yes_option
from ottla.cli.values import Number
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.admin import DelegationToken
    from ottla.sync import Admin

HOUR_MS: Final = 3_600_000


@click.group()
def token() -> None:
    """Manage delegation tokens, by which jobs connect as their owners."""


@token.command()
@click.option("--owner", help="As User:alice; yourself when it is not given.")
@click.option("--renewer", "renewers", multiple=True, help="As User:alice: who else may renew and expire it.")
@click.option("--max-hours", type=Number(min=0, min_open=True), help="How long it can be renewed; the cluster's limit else.")
@bootstrap_option
@format_option
def create(owner: str | None, renewers: tuple[str, ...], max_hours: float | None, bootstrap: str, output: str) -> None:
    """Create a token. Its id and its HMAC are a client's user name and password, with tokenauth=true."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        made = admin.create_token(owner=owner, renewers=renewers, max_lifetime_ms=-1 if max_hours is None else int(max_hours * HOUR_MS))
    rows = [(made.token_id, made.hmac.reveal(), made.owner, _time(made.expires_ms), _time(made.max_ms))]
    print_rows(output, "token create", ("token", "hmac", "owner", "expires", "last"), rows)


@token.command("list")
@click.argument("owners", nargs=-1)
@bootstrap_option
@format_option
def list_tokens(owners: tuple[str, ...], bootstrap: str, output: str) -> None:
    """List the tokens that you may see, or only OWNERS' tokens.

    HMACs are not shown.
    """
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        found = admin.describe_tokens(owners or None)
    rows = [
        (one.token_id, one.owner, one.requester, ",".join(one.renewers), _time(one.expires_ms), _time(one.max_ms))
        for one in sorted(found, key=lambda one: one.token_id)
    ]
    print_rows(output, "token list", ("token", "owner", "requester", "renewers", "expires", "last"), rows)


@token.command()
@click.argument("token_id")
@click.option("--hours", type=Number(min=0, min_open=True), help="From now; what the cluster gives else.")
@bootstrap_option
@format_option
def renew(token_id: str, hours: float | None, bootstrap: str, output: str) -> None:
    """Renew the token of that id."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        expires_ms = admin.renew_token(_named(admin, token_id).hmac, period_ms=-1 if hours is None else int(hours * HOUR_MS))
    print_rows(output, "token renew", ("token", "expires"), [(token_id, _time(expires_ms))])


@token.command()
@click.argument("token_id")
@click.option("--hours", type=Number(min=0), help="From now; at once when it is not given.")
@yes_option
@bootstrap_option
@format_option
def expire(token_id: str, hours: float | None, yes: bool, bootstrap: str, output: str) -> None:
    """Expire the token of that id; sessions that it has begun end, too."""
    from ottla.sync import Admin

    if not yes:
        when = "at once" if hours is None else f"in {hours:g} hours"
        end_of_plan(f"would end token {token_id} {when}, with the sessions that it has begun")
    with Admin(bootstrap, **client_settings()) as admin:
        expires_ms = admin.expire_token(_named(admin, token_id).hmac, period_ms=-1 if hours is None else int(hours * HOUR_MS))
    print_rows(output, "token expire", ("token", "expires"), [(token_id, "removed" if hours is None else _time(expires_ms))])


def _named(admin: Admin, token_id: str) -> DelegationToken:
    found = next((one for one in admin.describe_tokens() if one.token_id == token_id), None)
    if found is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"there is no token {token_id[:100]}, or it is not yours to see")
    return found


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
