"""``ottla quorum``: who holds the metadata log, and how far."""

from __future__ import annotations

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.output import asking_a_cluster, bootstrap_option, complain, format_option, print_rows
from ottla.cli.quorum_states import behind_ms, fetched_ms_ago, is_silent, observers_of


@click.command()
@bootstrap_option
@format_option
def quorum(bootstrap: str, output: str) -> None:
    """Show the nodes that hold the metadata log: leader, voters and observers, with how much each lacks, and when it last fetched."""
    from ottla.sync import Admin

    with asking_a_cluster(bootstrap), Admin(bootstrap, **client_settings()) as admin:
        found = admin.describe_quorum()
        cluster = admin.describe_cluster(include_fenced=True)
        registered = {node.node_id for node in cluster.nodes}
    end = max([state.end_offset for state in found.voters], default=0)
    rows = []
    for role, states in (("voter", found.voters), ("observer", observers_of(found, registered))):
        for state in states:
            name = "leader" if state.node_id == found.leader_id and role == "voter" else role
            if role == "voter" and is_silent(found, state, cluster.fenced):
                complain(f"voter {state.node_id} does not fetch the metadata log: `ottla cluster health` says why, and what to do")
            lag = end - state.end_offset
            times = behind_ms(found, state, lag), fetched_ms_ago(found, state)
            rows.append((state.node_id, name, state.end_offset, lag, *times, found.leader_epoch))
    print_rows(output, "quorum", ("node", "role", "end_offset", "lag", "behind_ms", "fetched_ms_ago", "leader_epoch"), rows)
