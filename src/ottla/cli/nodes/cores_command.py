"""``ottla broker start --cores``: the brokers of one machine, run as a service runs."""

from __future__ import annotations

import sys

from ottla.cli.nodes.cores import cores_plans, described
from ottla.cli.nodes.foreground import Foreground, Manner, format_nodes, run_foreground, say, wait_for_orphans
from ottla.cli.nodes.place import Place, PlaceState
from ottla.cli.nodes.plan import check, check_free
from ottla.cli.ready import report_ready
from ottla.config import BrokerConfig


def start_cores(given: dict[str, str], count: int, *, is_auto: bool, log_level: str, log_format: str, ready_file: str | None) -> None:
    """Runs the brokers until SIGTERM or Ctrl-C. A broker that fails is reported and started again."""
    from ottla.broker.formatting import random_uuid
    from ottla.runtime.world import real_world

    config = BrokerConfig(given)
    place = Place(config.log_dirs[0])
    place.lock()
    cluster = described(place, config, count, is_auto=is_auto, new_id=lambda: random_uuid(real_world(io_threads=1)))
    plans = cores_plans(cluster, given)
    check(plans)
    wait_for_orphans(plans)
    check_free([address for plan in plans for address in plan.addresses], "stop it, or change listeners")
    if len(cluster.nodes) != count:
        say(f"{place.path} has {len(cluster.nodes)} brokers; all of them are started on {count} cores")

    def announce(state: PlaceState) -> None:
        report_ready(state.bootstrap, ready_file)
        try:
            sys.stdout.write(f"ottla broker: {len(state.nodes)} brokers serve Kafka clients at {state.bootstrap}\n")
            sys.stdout.flush()
        except (OSError, ValueError, AttributeError):
            return

    async def make() -> Foreground:
        await format_nodes(place, cluster, plans)
        is_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
        manner = Manner(log_level, "json" if is_json else "text", has_log_files=False, is_restarting=True)
        place.write(cluster)
        return Foreground(place, cluster, plans, manner, on_served=announce)

    run_foreground(make)
