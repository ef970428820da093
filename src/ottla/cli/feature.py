"""``ottla feature``: list the features of a cluster, and set their levels."""

from __future__ import annotations

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.config import key_and_value, report_changes
from ottla.cli.names import complete_feature
from ottla.cli.output import bootstrap_option, end_of_plan, format_option, print_rows, yes_option


@click.group()
def feature() -> None:
    """List features and set their levels."""


@feature.command("list")
@bootstrap_option
@format_option
def list_features(bootstrap: str, output: str) -> None:
    """List the level of each feature, and the supported levels."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        found = admin.describe_features()
    rows = [(one.name, one.level, one.level_min, one.level_max) for one in found]
    print_rows(output, "feature list", ("feature", "level", "supported_from", "supported_to"), rows)


@feature.command("set")
@click.argument("levels", nargs=-1, required=True, metavar="FEATURE=LEVEL...", shell_complete=complete_feature)
@click.option("--downgrade", is_flag=True, help="Lower a level, where nothing is lost by it.")
@click.option("--unsafe", is_flag=True, help="Lower a level, though metadata is lost by it.")
@yes_option
@bootstrap_option
@format_option
def set_levels(levels: tuple[str, ...], downgrade: bool, unsafe: bool, yes: bool, bootstrap: str, output: str) -> None:
    """Set the levels of features, all of them or none."""
    from ottla.sync import Admin, UpgradeType

    wanted: dict[str, int] = {}
    for name, text in map(key_and_value, levels):
        if not text.isdecimal():
            raise click.UsageError(f"{name}={text}: expected the number of a level")
        wanted[name] = int(text)
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE if downgrade else UpgradeType.UPGRADE
    with Admin(bootstrap, **client_settings()) as admin:
        admin.update_features(wanted, upgrade_type=kind, validate_only=not yes)
    report_changes(output, "feature set", wanted, "set" if yes else "possible")
    if not yes:
        end_of_plan(f"would set {', '.join(levels)}")
    click.echo(f"set {', '.join(levels)}", err=True)
