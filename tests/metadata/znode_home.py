"""A tree of znodes and the controller that writes it, without a session between them."""

from __future__ import annotations

from ottla.coordination import Create, Operation
from ottla.metadata import znodes
from ottla.metadata.replay import replay
from ottla.metadata.znode_reader import Cluster, Found, read_cluster
from ottla.metadata.znode_writer import ZnodeWriter, joined
from ottla.sim.znodes import Tree
from ottla.wire.schema import Stored

EPOCH = 5
BYTES_MAX = 1 << 20


class Asker:
    session_id = 1
    credentials: tuple[tuple[str, str], ...] = ()


class Home:
    """A tree of znodes, and the controller that writes it."""

    def __init__(self, *, bytes_max: int = BYTES_MAX) -> None:
        self.tree = Tree()
        self.bytes_max = bytes_max
        made: set[str] = set()
        for path in (*znodes.PERSISTENT, "/controller_epoch"):
            parts = path.split("/")[1:]
            for count in range(1, len(parts) + 1):
                parent = "/" + "/".join(parts[:count])
                if parent not in made:
                    made.add(parent)
                    self.do([Create(parent)])
        cluster = self.read()
        self.image = cluster.image
        self.writer = ZnodeWriter(cluster.known, controller_epoch=EPOCH, broker_id=1)

    def do(self, operations: list[Operation]) -> None:
        self.tree.carry_out(Asker(), operations, lambda path: path, now_ms=0, is_multi=True)

    def found(self) -> Found:
        return {path: (data, self.tree.version(path)) for path, data in self.tree.paths().items()}

    def read(self) -> Cluster:
        return read_cluster(self.found(), {})

    def requests(self, records: list[Stored]) -> list[list[Operation]]:
        self.writer.check(self.image, records)
        records = list(self.writer.named(records))
        removed = self.writer.removed(self.image, records)
        self.image = replay(self.image, records)
        return joined(self.writer.units(self.image, records, removed), bytes_max=self.bytes_max)

    def write(self, records: list[Stored]) -> None:
        for request in self.requests(records):
            self.do(request)
