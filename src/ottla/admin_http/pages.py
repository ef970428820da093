"""The admin pages, by their paths, and a response in HTTP. Source: RFC 9112."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from ottla import __version__
from ottla.admin_http.exposition import CONTENT_TYPE, Family, render
from ottla.admin_http.kafka_names import broker_families
from ottla.admin_http.lag import lag_families
from ottla.admin_http.process import IdleMeter, process_families
from ottla.admin_http.replica_names import partition_families, replica_families
from ottla.admin_http.transaction_names import transaction_families
from ottla.broker.status import Node, Status
from ottla.broker.tasks.slices import Slices
from ottla.loggers import get_logger
from ottla.storage.directory.directory import LogDirectory

log = get_logger(__name__)

HEAD_BYTES_MAX: Final = 16 * 1024
METRICS_PAGES: Final = ("/metrics", "/metrics/partitions", "/metrics/lag")
NAMES_MAX: Final = 10
REQUEST_SECONDS_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 64


class Answer(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[str, ...] = ()


def as_json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(status, "application/json", msgspec.json.encode(value) + b"\n")


async def _as_metrics(families: Iterable[Family], slices: Slices) -> Answer:
    return Answer(HTTPStatus.OK, CONTENT_TYPE, (await render(families, slices)).encode())


class AdminPages:
    """The pages of the admin listener, and the answer for each path."""

    def __init__(self, node: Node) -> None:
        self.certificate_ends_ms: int | None = None  # of the pages' own, where they have one
        self._node = node
        self._idle = IdleMeter()
        self._started_at = time.time()
        self._of_parts: Final[dict[str, Callable[[], Awaitable[Answer]]]] = {path: partial(self._metrics, path) for path in METRICS_PAGES}
        self._pages: dict[str, Callable[[], Awaitable[Answer]]] = self._of_parts | {
            "/healthz": self._live,
            "/livez": self._live,
            "/readyz": self._ready,
            "/version": self._version,
        }

    async def get(self, path: str) -> Answer:
        page = self._pages.get(path)
        if page is None:
            return as_json({"error": f"no page {path}", "pages": sorted(self._pages)}, HTTPStatus.NOT_FOUND)
        if path in self._of_parts and not self._node.is_made:
            return as_json({"error": f"the broker starts: {self._node.start_step}"}, HTTPStatus.SERVICE_UNAVAILABLE)
        return await page()

    @property
    def _status(self) -> Status:
        return self._node.status

    async def families(self, path: str, slices: Slices) -> Sequence[Family]:
        """Returns the families of a page of metrics, also those that have no samples yet."""
        if path == "/metrics/partitions":
            return await partition_families(self._status, slices)
        if path == "/metrics/lag":
            return await lag_families(self._status, slices)
        replicas = await replica_families(self._status, slices, now_ms=self._status.parts.world.clock.now_ms())
        return [
            *replicas,
            *broker_families(self._status, idle_share=self._idle.read()),
            *transaction_families(self._status),
            *process_families(self._status, started_at=self._started_at, certificate_ends_ms=self.certificate_ends_ms),
        ]

    async def _metrics(self, path: str) -> Answer:
        slices = Slices(self._status.parts.world.clock)
        return await _as_metrics(await self.families(path, slices), slices)

    async def _live(self) -> Answer:
        return as_json({"status": "alive"})  # the loop answers

    async def _ready(self) -> Answer:
        found = readiness(self._node)
        return as_json(found, HTTPStatus.OK if found["status"] == "ready" else HTTPStatus.SERVICE_UNAVAILABLE)

    async def _version(self) -> Answer:
        return as_json({"name": "ottla", "version": __version__} | _identity(self._node))


async def response_to(head: bytes, get: Callable[[str], Awaitable[Answer]]) -> bytes:
    """Returns the whole response to a request with this head."""
    method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if method not in ("GET", "HEAD"):
        answer = as_json({"error": f"{method} is not supported; only GET and HEAD are supported"}, HTTPStatus.METHOD_NOT_ALLOWED)
    else:
        try:
            answer = await get(path)
        except Exception as error:
            log.error("admin_page_failed", path=path, exc_info=error)
            answer = as_json({"error": "the page could not be made; see the broker's log"}, HTTPStatus.INTERNAL_SERVER_ERROR)
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        *answer.headers,
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if method == "HEAD" else answer.body)


def _identity(node: Node) -> dict[str, object]:
    """Returns the node's id, and the cluster's, null until the start has come to it."""
    return {"node_id": node.config.node_id, "cluster_id": node.status.cluster_id if node.is_made else None}


def readiness(node: Node) -> dict[str, object]:
    """Returns ``ready`` when the broker serves clients; else the reasons why not. Notes are what is wrong with some partitions.

    They do not count: other partitions are served, and where one has no leader, no other broker would be better.
    """
    starts = [] if node.has_started else [f"the broker starts: {node.start_step}"]
    reasons = starts or _troubles(node.status)
    notes = [] if starts else _notes(node.status)
    return {"status": "not ready" if reasons else "ready", "reasons": reasons, "notes": notes} | _identity(node)


def _troubles(status: Status) -> list[str]:
    reasons = []
    if not status.is_open:
        reasons.append("the listeners are closed: the broker is stopping")
    if status.is_held:
        reasons.append("queued.max.requests requests are waiting for the disk")
    replicas = status.partitions.all()
    if replicas and all(partition.log.is_failed for partition in replicas):
        reasons.append("all partitions have failed")
    if serving := _all_full(status):
        full = ", ".join(directory.path for directory in serving)
        reasons.append(f"every log directory is full, and nothing is written: {full}; lower retention.ms, delete topics, or add room")
    return reasons


def _all_full(status: Status) -> list[LogDirectory]:
    """Returns the log directories that have not failed, where every one of them is full."""
    serving = [directory for directory in status.partitions.directories if not directory.is_failed]
    return serving if all(directory.room.is_full for directory in serving) else []


def _notes(status: Status) -> list[str]:
    notes = []
    failed = sorted(
        f"{partition.topic}-{partition.index}" + (f" ({reason})" if (reason := partition.log.health.reason) else "")
        for partition in status.partitions.all()
        if partition.log.is_failed
    )
    if failed:
        shown = ", ".join(failed[:NAMES_MAX]) + ", ..." * (len(failed) > NAMES_MAX)
        notes.append(f"{len(failed)} partition{'s have' if len(failed) > 1 else ' has'} failed: {shown}")
    for directory in status.partitions.directories:
        if directory.is_failed:
            notes.append(f"log directory {directory.path} has failed: see log_dir_failed in the log")
        elif directory.room.is_full and not _all_full(status):
            notes.append(f"log directory {directory.path} is full, and nothing is written there")
    leaderless = sum(map(len, status.image.index.leaderless.values()))
    if leaderless:
        notes.append(f"{leaderless} partition{'s of the cluster have' if leaderless > 1 else ' of the cluster has'} no leader")
    if status.quorum is not None and status.quorum.leader_id < 0:
        notes.append("no controller is active, as far as this node knows: nothing can be created or changed, and no leader elected")
    if count := status.unclean_election_count:
        leaders = f"{count} leader{'s' * (count > 1)} that {'were' if count > 1 else 'was'} not in sync"
        found = "unclean_leader_elected in its log has the partitions"
        notes.append(f"this controller has elected {leaders} since its start: records may be lost; {found}")
    return notes
