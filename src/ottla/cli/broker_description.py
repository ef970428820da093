"""What ``ottla broker describe`` says of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.output import print_json, print_rows
from ottla.cli.starting import how_to_start
from ottla.cli.unanswered import Unanswered
from ottla.cli.unseen_topics import unseen_text
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.sync import Admin


def print_description(admin: Admin, ids: Sequence[int], output: str, unanswered: Unanswered) -> None:
    """Prints each broker, with what it says itself where it answers; KafkaError for one that is not registered."""
    from ottla.sync import Broker, ConfigSource

    cluster = admin.describe_cluster(include_fenced=True)
    nodes = {node.node_id: node for node in cluster.nodes}
    topics = admin.list_topics()
    partitions = [found for topic in topics.values() for found in topic.partitions.values()]
    if (unseen := unseen_text(admin, topics)) is not None:
        unanswered.say(f"what brokers lead and have is counted as far as it is seen: {unseen}")
    items: list[dict[str, Any]] = []
    for broker in ids:
        node = nodes.get(broker)
        if node is None:
            known = ", ".join(map(str, sorted(nodes)))
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker} is not registered; brokers {known} are")
        is_fenced = broker in cluster.fenced
        item: dict[str, Any] = {
            "id": broker,
            "address": f"{node.host}:{node.port}",
            "rack": node.rack,
            "state": "fenced" if is_fenced else "serves",
            "leads": sum(found.leader == broker for found in partitions),
            "replicas": sum(broker in found.replicas for found in partitions),
            "out_of_sync": sum(broker in found.replicas and broker not in found.in_sync for found in partitions),
            "directories": [],
            "configs": {},
        }
        if is_fenced:  # one that does not serve says nothing of itself
            missing = f"the directories and the configuration of broker {broker} are not shown: it does not serve"
            unanswered.say(f"{missing}{how_to_start([broker])}")
        else:
            with unanswered.of(broker, f"the directories and the configuration of broker {broker}"):
                [directories] = admin.describe_log_dirs([broker], with_replicas=False).values()
                item["directories"] = [found.path for found in directories]
                item["configs"] = {
                    name: "[hidden]" if entry.is_sensitive else entry.value
                    for name, entry in admin.describe_configs(Broker(broker)).items()
                    if entry.source is not ConfigSource.DEFAULT
                }
        items.append(item)
    if output == "json":
        print_json("broker describe", items)
        return
    for index, item in enumerate(items):
        if index:
            click.echo()
        head = ("state", "address", "rack", "leads", "replicas", "out_of_sync", "directories")
        click.echo(f"broker {item['id']}  " + "  ".join(f"{name} {_text(item[name])}" for name in head))
        if item["configs"]:
            print_rows("text", "broker describe", ("key", "value"), sorted(item["configs"].items()))


def _text(value: object) -> str:
    return ",".join(map(str, value)) or "-" if isinstance(value, list) else "-" if value is None else str(value)
