"""A compose file for a cluster of containers on one machine: each node a broker and a controller."""

from __future__ import annotations

from typing import Any, Final

IMAGE: Final = "ottla"
INSIDE, OUTSIDE, CONTROLLER = 9094, 9092, 9093
NODES_MAX: Final = 9


def compose(*, nodes: int, cluster_id: str, image: str = IMAGE) -> dict[str, Any]:
    """Returns the file. Node N is at localhost:(9092 + 10 * (N - 1)) from outside, and at ``ottla-N:9094`` for other containers."""
    names = {node: f"ottla-{node}" for node in range(1, nodes + 1)}
    voters = ",".join(f"{node}@{name}:{CONTROLLER}" for node, name in names.items())
    factor = min(3, nodes)
    services = {}
    for node, name in names.items():
        port = OUTSIDE + 10 * (node - 1)
        services[name] = {
            "image": image,
            "build": ".",
            "hostname": name,
            "ports": [f"127.0.0.1:{port}:{OUTSIDE}"],
            "volumes": [f"{name}:/var/lib/ottla"],
            "restart": "unless-stopped",
            "environment": {
                "CLUSTER_ID": cluster_id,
                "KAFKA_NODE_ID": str(node),
                "KAFKA_PROCESS_ROLES": "broker,controller",
                "KAFKA_CONTROLLER_QUORUM_VOTERS": voters,
                "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
                "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "KAFKA_LISTENERS": f"INSIDE://0.0.0.0:{INSIDE},OUTSIDE://0.0.0.0:{OUTSIDE},CONTROLLER://0.0.0.0:{CONTROLLER}",
                "KAFKA_ADVERTISED_LISTENERS": f"INSIDE://{name}:{INSIDE},OUTSIDE://localhost:{port},CONTROLLER://{name}:{CONTROLLER}",
                "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
                "KAFKA_DEFAULT_REPLICATION_FACTOR": str(factor),
                "KAFKA_MIN_INSYNC_REPLICAS": str(max(1, factor - 1)),
            },
        }
    return {"services": services, "volumes": {name: {} for name in names.values()}}
