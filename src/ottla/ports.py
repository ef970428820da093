"""The outside world on one page: everything that the broker and the clients may ask of it.

Two worlds implement these Protocols: ``ottla.runtime`` (real sockets, files and clocks) and ``ottla.sim`` (virtual ones, under a seed). No
code above a port knows in which world it runs.

Time. ``Clock.now_ms`` is the wall clock, for timestamps that people see; ``Clock.monotonic_ms`` only goes forward, for
timeouts. Random. One seeded ``random.Random`` per world, passed in.

File work comes in three classes (ARCHITECTURE.md). The methods of ``Disk`` and ``File`` are coroutines: the real disk completes class a
(page-cache appends, warm reads) without suspending; the simulated disk may suspend at each.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from ottla.coordination import Coordination
from ottla.tls import TlsClient, TlsError, TlsPeer, TlsServer
from ottla.types import Secret

Buffer = bytes | bytearray | memoryview

Q = TypeVar("Q")
R = TypeVar("R")

BACKLOG: Final = 1024

Pace = Callable[[int], Awaitable[None]]
"""``await pace(size)`` reports that ``size`` more bytes were read or written; it returns when the rate of the job allows more."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Returns wall-clock milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_ms(self) -> int:
        """Returns milliseconds from an arbitrary start; never goes back."""
        ...

    def monotonic_us(self) -> int:
        """Returns the same in microseconds, for measuring."""
        ...


class Random(Protocol):
    """The part of ``random.Random`` that is used; seeded by the world."""

    def random(self) -> float: ...
    def randrange(self, stop: int, /) -> int: ...
    def getrandbits(self, k: int, /) -> int: ...


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def call_later_ms(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Runs ``callback`` once on the loop, not before ``delay_ms`` milliseconds have passed."""
        ...


class FileRegion(Protocol):
    """``length`` bytes of a file from ``offset``, to be sent without being read into Python (sendfile)."""

    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    def __len__(self) -> int: ...
    def read(self) -> bytes:
        """Returns the bytes themselves: for worlds and connections that cannot send a file."""
        ...


class File(Protocol):
    """An open file. Appending and positioned reading only: a log never seeks."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes in the file, counting every append that has completed."""
        ...

    async def append(self, buffers: Sequence[Buffer]) -> int:
        """Appends all buffers in order (one vectored write where they fit); returns the old size.

        A failure leaves the file cut back to its old size where that is possible, and raises OSError.
        """
        ...

    async def pread(self, offset: int, length: int) -> bytes:
        """Returns up to ``length`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def region(self, offset: int, length: int) -> FileRegion: ...

    async def truncate(self, size: int) -> None: ...

    async def sync(self) -> None:
        """Makes what was written before the call survive a power cut."""
        ...

    async def close(self) -> None: ...


class Job(Struct, Generic[Q, R], frozen=True):
    """Long work over closed files (class c): an async function of a disk, a request and a pace, to a result.

    A worker process finds the job by its ``name``, ``module:attribute``; request and result are msgspec structs.
    """

    name: str
    run: Callable[[Disk, Q, Pace], Awaitable[R]]
    request: type[Q]
    result: type[R]
    is_background: bool = False  # never delays a job that a caller waits for


class Disk(Protocol):
    """One machine's file system. Paths are absolute strings with ``/``."""

    async def open(self, path: str, *, create: bool = False) -> File:
        """Opens the file for reading and appending. FileNotFoundError when absent and ``create`` is false."""
        ...

    async def read_file(self, path: str) -> bytes:
        """Returns the whole file: for small ones (checkpoints, marks)."""
        ...

    async def read_given_file(self, path: str, *, bytes_max: int) -> bytes:
        """Returns the whole file that an operator has named. OSError also for a longer one, and for a device or a pipe, without an end."""
        ...

    async def write_file_atomic(self, path: str, data: bytes) -> None:
        """Writes beside, syncs, renames over ``path``, syncs the directory: either the old or the new content is found after a crash."""
        ...

    async def exists(self, path: str) -> bool:
        """True when something is there; OSError where the disk does not say."""
        ...

    async def is_dir(self, path: str) -> bool:
        """True when a directory is there; OSError where the disk does not say."""
        ...

    async def list_dir(self, path: str) -> list[str]:
        """Returns the names in the directory, sorted. FileNotFoundError when absent."""
        ...

    async def make_dirs(self, path: str, *, is_private: bool = False) -> None:
        """Makes the directory. With ``is_private`` only this user may read it and the files in it, later ones, too."""
        ...

    async def space(self, path: str) -> tuple[int, int]:
        """Returns the bytes of the volume that holds the path, and how many of them may still be used."""
        ...

    async def reserve(self, path: str, size_bytes: int) -> None:
        """Makes a file that occupies so many bytes, whatever their content; OSError, and it occupies none, without enough room."""
        ...

    async def rename(self, source: str, target: str) -> None: ...
    async def remove(self, path: str) -> None: ...

    async def remove_tree(self, path: str) -> None:
        """Deletes the directory and all in it; no error when it was absent."""
        ...

    async def lock(self, path: str) -> None:
        """Locks the file at ``path`` until this process ends or ``unlock`` is called.

        BlockingIOError when another holds it: its text is which process that is, as far as that is known.
        """
        ...

    async def unlock(self, path: str) -> None: ...

    async def sync_dir(self, path: str) -> None:
        """Makes names created, renamed and removed in the directory before the call survive a power cut."""
        ...

    def boot_id(self) -> str:
        """Returns an id of the machine's present boot: while it is the same, all that was written is still there, synced or not. Empty if
        it is unknown.
        """
        ...

    def open_files_left(self) -> int:
        """Returns how many more partitions this process may open a file for, leaving out files that other things need."""
        ...

    async def sync_file_system(self, path: str) -> None:
        """Makes all earlier changes on the volume that holds the path survive a power cut."""
        ...

    async def file_number(self, path: str) -> int:
        """Returns the number of the file in its file system: a copy has another one, a renamed file keeps its own. FileNotFoundError."""
        ...

    async def modified_ms(self, path: str) -> int:
        """Returns when the file was written to last, in wall-clock milliseconds. FileNotFoundError when absent."""
        ...

    async def take_turns(self, size: int) -> None:
        """Lets whatever else waits for the loop go first, between two pieces of work of ``size`` bytes that do not wait for the disk."""
        ...

    async def work(self, job: Job[Q, R], request: Q, *, bytes_per_second: float = math.inf) -> R:
        """Returns the job's result. It is done away from the loop, over this disk, at most so many bytes a second.

        What the job raises is raised here: OSError and KafkaError as they are. WorkerDied when its worker died meanwhile.
        """
        ...


class ConnectionHandler(Protocol):
    """The owner of a connection. Called on the loop, never concurrently."""

    def on_data(self, data: memoryview) -> bool:
        """Takes bytes that came in; ``data`` is writable, so that offsets can be stamped in place.

        True when views of ``data`` outlive the call: the caller then never writes to that memory again. False when it
        may be used for the next bytes at once.
        """
        ...

    def room(self) -> memoryview | None:
        """Returns where the next bytes belong, if that is known: ``on_data`` may be given them there, and they are not copied."""
        ...

    def on_drain(self) -> None:
        """Notes that the send queue that had grown past the limit is empty again."""
        ...

    def on_close(self, error: Exception | None) -> None:
        """Ends the handling; called exactly once. ``error`` is None for an orderly end by either side."""
        ...


class Connection(Protocol):
    """A byte stream to a peer."""

    @property
    def peer(self) -> tuple[str, int]: ...

    @property
    def local(self) -> tuple[str, int]: ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes handed to ``send`` and not yet taken by the transport."""
        ...

    @property
    def is_closed(self) -> bool: ...

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        """Sends the buffers in order, after all earlier ones. They belong to the connection until sent. Ignored when closed."""
        ...

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def turn_away(self) -> None:
        """Reads nothing of an accepted connection, not even a handshake, until it is closed. For the factory of its handler."""
        ...

    def probe(self) -> None:
        """Asks the peer's system whether it knows the connection, which ends if that has restarted since; silence proves nothing.

        The peer's process does not notice. Where the system cannot ask, nothing happens.
        """
        ...

    def close(self) -> None:
        """Closes the connection once what was sent has left (bounded by a grace period), and at once for ``abort``."""
        ...

    def abort(self) -> None: ...


OnTls = Callable[[Connection, TlsPeer | TlsError], None]
"""A callback, called once for each accepted connection: after its handshake, before the first bytes; or, if that failed, before it closes.
"""


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]:
        """Host and port as bound: port 0 has become the real one."""
        ...

    def pause(self) -> None:
        """Lets new connections wait, not accepted, until ``resume``."""
        ...

    def resume(self) -> None: ...

    def set_tls(self, tls: TlsServer) -> None:
        """Sets the keys and certificates of new connections to a listener that speaks TLS. ValueError as of ``check_tls``."""
        ...

    async def close(self) -> None: ...


class Network(Protocol):
    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Connection], ConnectionHandler],
        *,
        backlog: int = BACKLOG,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        tls: TlsServer | None = None,
        on_tls: OnTls | None = None,
    ) -> Listener:
        """Listens; each accepted connection is handed to ``accept``, whose handler then owns it. OSError when the address is taken.

        ``backlog`` is how many connections the system holds before they are accepted; it may hold fewer. The buffer sizes apply to the
        sockets of accepted connections; -1 leaves them to the system. With ``tls`` handlers see decrypted bytes; ``accept`` is called
        before the handshake, ``on_tls`` after it.
        """
        ...

    async def addresses_of(self, host: str) -> Sequence[str]:
        """Returns the addresses that the name has now. OSError for a name that has none."""
        ...

    def check_tls(self, tls: TlsServer | TlsClient) -> None:
        """Raises ValueError with the reason why keys, certificates or ciphers cannot be used."""
        ...

    def check_handshake(self, server: TlsServer, client: TlsClient) -> None:
        """Raises ValueError with the reason why such a client and such a server would not agree, apart from the server's host."""
        ...

    async def connect(
        self,
        host: str,
        port: int,
        make_handler: Callable[[Connection], ConnectionHandler],
        *,
        receive_buffer_bytes: int = -1,
        tls: TlsClient | None = None,
    ) -> Connection:
        """Opens a connection. OSError (ConnectionRefusedError and its siblings) when no server answers.

        The buffer is that of its socket; -1 leaves it to the system. With ``tls`` the server's certificate is verified when this returns,
        and what the handler sent is on its way. TlsError when the certificate is refused, or the server does not speak TLS.
        """
        ...


class Download(Struct, frozen=True):
    """A download of ``bytes_max`` at most; with a ``form`` it is posted."""

    url: str
    bytes_max: int
    form: bytes | None = None
    authorization: Secret | None = None


class World(Struct, frozen=True):
    """Everything outside one process."""

    clock: Clock
    random: Random
    timers: Timers
    disk: Disk
    network: Network
    secret_bytes: Callable[[int], bytes]
    """Returns so many unpredictable bytes, for nonces and salts."""
    coordination: Coordination | None = None
    """For a broker in ZooKeeper mode."""
    fetch: Callable[[Download], Awaitable[bytes]] | None = None
    """Fetches a document over HTTPS, within seconds. OSError when there is none, or it is too long; PermissionError when the server refuses
    access. None in a world without HTTPS.
    """
