"""What is fuzzed, each with the errors that it may end in; any other exception is a finding.

A target gets arbitrary bytes. Where a checksum or a version would stop nearly all of them at the door, the target puts the
right one in: what comes after that check has to be tried.
"""

from __future__ import annotations

import contextlib
import importlib.util
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from ottla.broker.metadata.log import MetadataLog
from ottla.client.consumer_protocol import decode_assignment, decode_subscription
from ottla.config.jaas import parse_jaas
from ottla.config.principal_rules import PrincipalRules
from ottla.errors import DecodeError, KafkaError, StorageError
from ottla.groups.records import decode_record
from ottla.messages.headers import decode_request_header, decode_response_header
from ottla.messages.registry import APIS
from ottla.metadata.image import EMPTY_IMAGE
from ottla.metadata.replay import replay
from ottla.metadata.transactions import Transactions
from ottla.records import plain_kernel
from ottla.records.batch import HEADER, LENGTH_OVERHEAD, check_batch, write_crc
from ottla.records.builder import BatchBuilder
from ottla.records.compression import decompress
from ottla.records.epochs import EpochCache
from ottla.records.iteration import walk_records
from ottla.records.kernel import COMPILED
from ottla.security.distinguished_name import name_of, subject_of
from ottla.security.mechanism import Refusal, ServerMechanism
from ottla.security.plain import PlainServer
from ottla.security.scram import ScramClient, ScramCredential, ScramMechanism, ScramServer
from ottla.security.validity import validity_ms
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.config import LogConfig
from ottla.storage.directory.checkpoint import from_text
from ottla.storage.directory.directory import DirectoryIdentity
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.producers import ProducerStates
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.time_index import TimeIndex
from ottla.types import Secret
from ottla.wire.compiler import decode
from ottla.wire.frames import FrameCutter

LIMIT: Final = 1 << 20
COMPILED_KERNEL: Final = importlib.import_module(COMPILED) if importlib.util.find_spec(COMPILED) else None
_REQUESTS: Final = [(api.request, version) for api in APIS.values() for version in range(api.version_min, api.version_max + 1)]
_RESPONSES: Final = [(api.response, version) for api in APIS.values() for version in range(api.version_min, api.version_max + 1)]


def requests(data: bytes) -> None:
    if len(data) >= 2:
        message, version = _REQUESTS[int.from_bytes(data[:2], "big") % len(_REQUESTS)]
        decode(message, version, memoryview(data)[2:])


def responses(data: bytes) -> None:
    if len(data) >= 2:
        message, version = _RESPONSES[int.from_bytes(data[:2], "big") % len(_RESPONSES)]
        decode(message, version, memoryview(data)[2:])


def headers(data: bytes) -> None:
    for is_flexible in (False, True):
        for decode_header in (decode_request_header, decode_response_header):
            try:
                decode_header(memoryview(data), is_flexible=is_flexible)
            except DecodeError:
                continue


def frames(data: bytes) -> None:
    """Cut as the first byte says: every cut must find the same frames, up to the first one that is refused."""
    whole, cut = FrameCutter(4096), FrameCutter(4096)
    step = 1 + (data[0] if data else 0)
    expected: list[bytes] = []
    found: list[bytes] = []
    refused = _feed(whole, [data], expected), _feed(cut, [data[at : at + step] for at in range(0, len(data), step)], found)
    assert refused[0] == refused[1]
    assert expected == found


def _feed(cutter: FrameCutter, pieces: list[bytes], out: list[bytes]) -> bool:
    try:
        for piece in pieces:
            for frame, _ in cutter.feed(memoryview(piece)):
                out.append(bytes(frame))
    except DecodeError:
        return True
    return False


def batches(data: bytes) -> None:
    """A header of these bytes, with length, magic and CRC that are right, and the rest as records."""
    if len(data) < HEADER.size:
        check_batch(memoryview(bytearray(data)))
        return
    batch = _made_whole(data)
    check_batch(memoryview(batch), from_client=bool(data[0] & 1))
    for _ in walk_records(batch, limit=LIMIT):
        pass


def kernel(data: bytes) -> None:
    """Records without a batch around them; a compiled kernel, where there is one, says of them what the plain one says."""
    said = _columns_of(plain_kernel, data)
    if COMPILED_KERNEL is not None:
        assert _columns_of(COMPILED_KERNEL, data) == said


def _columns_of(form: ModuleType, data: bytes) -> Any:
    count, first, last = data[:3] if len(data) >= 3 else (1, 0, 255)
    columns: dict[str, list[Any]] = {name: [] for name in ("offsets", "times", "keys", "values", "headers")}
    numbers = {"base_offset": 2**63 - 10, "base_timestamp": -(2**62), "last_delta": 200, "delta_min": first, "delta_max": last}
    try:
        return columns, form.decode_columns(data, 3, count, **numbers, **columns)
    except DecodeError as error:
        return columns, str(error)


def _made_whole(data: bytes) -> bytearray:
    batch = bytearray(data)
    struct.pack_into(">i", batch, 8, len(batch) - LENGTH_OVERHEAD)
    batch[16] = 2
    write_crc(batch)
    return batch


def compression(data: bytes) -> None:
    if data:
        assert len(decompress(data[0] % 6, memoryview(data)[1:], LIMIT)) <= LIMIT


def groups(data: bytes) -> None:
    """Stored records of groups, and what members tell each other."""
    cut = data[0] if data else 0
    for attempt in (
        lambda: decode_record(data[1 : 1 + cut], data[1 + cut :]),
        lambda: decode_record(data, None),
        lambda: decode_subscription("sticky", data, None),
        lambda: decode_assignment(data),
    ):
        try:
            attempt()
        except DecodeError:
            continue


def files(data: bytes) -> None:
    """The small files beside a log."""
    text = data.decode("latin-1")
    for attempt in (
        lambda: from_text(text),
        lambda: EpochCache.from_text(text),
        lambda: DirectoryIdentity.from_text(text, "directory"),
        lambda: OffsetIndex.from_bytes(data, 0, log_size=1 << 20),
        lambda: TimeIndex.from_bytes(data, 0),
        lambda: ProducerStates.from_snapshot(data),
    ):
        try:
            attempt()
        except (DecodeError, StorageError):
            continue


DIRECTORY: Final = "/data/t-0"
STEM: Final = f"{DIRECTORY}/{0:020d}"


def logs(data: bytes) -> None:
    """A log is opened on a segment of these bytes, with indexes and a snapshot of them, after a stop that was clean or not."""
    if not data:
        return
    disk = _disk_with({f"{STEM}.log": _segment(data), f"{STEM}.index": data, f"{STEM}.timeindex": data})
    opened = run(PartitionLog.open(disk, DIRECTORY, config=LogConfig(), now_ms=0, clean=bool(data[0] & 1)))
    assert 0 <= opened.log_start_offset <= opened.log_end_offset


def metadata(data: bytes) -> None:
    """The metadata log holds a record of these bytes."""
    builder = BatchBuilder()
    builder.append(None, data, timestamp_ms=0)
    disk = _disk_with({f"/data/__cluster_metadata-0/{0:020d}.log": bytes(builder.build())})
    run(_read_through(disk))


async def _read_through(disk: InstantDisk) -> None:
    log = await MetadataLog.open(disk, "/data", now_ms=0, clean=False)
    async for batches in log.records(0, log.end_offset):
        with contextlib.suppress(KeyError, AssertionError):  # records that fit nothing: the replica stops its node
            replay(EMPTY_IMAGE, Transactions().counting(record for batch in batches for record in batch.records))


def _segment(data: bytes) -> bytes:
    """The bytes in batches of up to 200, made whole, so that recovery reads past the first one."""
    pieces = [data[at : at + 200] for at in range(0, len(data), 200)]
    return b"".join(bytes(_made_whole(piece)) if len(piece) >= HEADER.size else piece for piece in pieces)


def _disk_with(contents: dict[str, bytes]) -> InstantDisk:
    disk = InstantDisk()
    for path, content in contents.items():
        disk.put(path, content)
    return disk


def mechanisms(data: bytes) -> None:
    """Tokens of PLAIN and SCRAM, to servers and clients, cut at zero bytes twice; nobody is let in by chance."""
    servers: list[ServerMechanism] = [PlainServer(lambda name: Secret("secret")), *(_scram(one) for one in ScramMechanism)]
    for server in servers:
        with contextlib.suppress(Refusal):
            for token in data.split(b"\0\0", 3):
                assert server.step(token).name is None
    for one in ScramMechanism:
        with contextlib.suppress(Refusal):
            ScramClient(one, "alice", Secret("secret"), nonce="nonce").challenge(data)
        with contextlib.suppress(Refusal):
            ScramClient(one, "alice", Secret("secret"), nonce="nonce").verify(data)


def _scram(mechanism: ScramMechanism) -> ScramServer:
    known = ScramCredential(b"salt", bytes(64), bytes(64), 4096)
    return ScramServer(mechanism, lambda name: known, nonce="nonce", decoy_key=b"decoy")


def texts(data: bytes) -> None:
    """Login modules and rules for subjects."""
    text = data.decode("latin-1")
    for attempt in (lambda: parse_jaas(text), lambda: PrincipalRules.parse(text)):
        with contextlib.suppress(KafkaError):
            attempt()


def certificates(data: bytes) -> None:
    """A certificate, whole and from its subject on."""
    for attempt in (lambda: subject_of(data), lambda: name_of(data), lambda: validity_ms(data)):
        with contextlib.suppress(DecodeError):
            attempt()


Target = Callable[[bytes], None]
TARGETS: Final[dict[str, tuple[Target, int]]] = {
    # How many inputs of ten million each gets: cheap ones more.
    "requests": (requests, 2_800_000),
    "responses": (responses, 1_800_000),
    "headers": (headers, 500_000),
    "frames": (frames, 500_000),
    "batches": (batches, 1_000_000),
    "kernel": (kernel, 500_000),
    "compression": (compression, 1_000_000),
    "groups": (groups, 700_000),
    "files": (files, 500_000),
    "logs": (logs, 150_000),
    "metadata": (metadata, 150_000),
    "mechanisms": (mechanisms, 200_000),
    "texts": (texts, 100_000),
    "certificates": (certificates, 100_000),
}
ALLOWED: Final = (DecodeError, KafkaError, StorageError)
