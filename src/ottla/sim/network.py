"""Streams between named hosts, in memory, and what may happen to them.

Bytes of a connection arrive in order, after a delay, cut at arbitrary places; bytes of different connections in any order. What
goes wrong is distinguished as in real networks:

- a host without a listener refuses at once; so does a firewall that rejects;
- a process that dies ends its connections, with an end or a reset; its port may accept for a few milliseconds more, only to reset;
- a host that is dark, or without power, and a link that is cut say nothing: who connects waits, and who has sent does not know.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, cast

from ottla.ports import BACKLOG, Connection, ConnectionHandler, OnTls
from ottla.sim.connection import Address, Signal, SimConnection, SimListener
from ottla.sim.exchanges import Seen
from ottla.sim.link import Host, Link
from ottla.sim.loop import SimLoop
from ottla.sim.process import Process, alive
from ottla.sim.tls import handshake
from ottla.sim.trace import Trace
from ottla.tls import TlsClient, TlsError, TlsServer

EPHEMERAL_PORT: Final = 40_000
DYING_MS_MAX: Final = 5.0
"""For so long the port of a dead process may accept."""
CONNECT_SECONDS_MAX: Final = 127.0
"""Linux gives up after six repetitions of the first packet."""
BACKLOG_RETRY_MS: Final = 1000.0


class Fabric:
    """The wires between all hosts of a simulation."""

    def __init__(self, random_of: Callable[[str], random.Random], trace: Trace, *, delay_ms_max: float = 1.0) -> None:
        self._random_of = random_of
        self._rng = random_of("network")
        self._trace = trace
        self._delay_ms_max = delay_ms_max
        self._hosts: dict[str, Host] = {}
        self._links: dict[tuple[str, str], Link] = {}  # from, to
        self._listeners: dict[Address, SimListener] = {}
        self._connections: dict[SimConnection, None] = {}
        self._last_ports: Counter[str] = Counter()
        self.on_exchange: Seen | None = None
        """Is notified of the exchanges of all processes that are booted from then on."""
        self.counts: Counter[str] = Counter()
        """What rarely happens, by name: a run that never meets it has not tried it."""

    def add_host(self, name: str) -> None:
        self._hosts.setdefault(name, Host())

    def link(self, source: str, target: str) -> Link:
        """Returns the link from the one host to the other."""
        found = self._links.get((source, target))
        if found is None:
            for name in (source, target):
                self.add_host(name)
            rng = self._random_of(f"link {source} -> {target}")
            found = Link(rng, self._hosts[source], self._hosts[target], delay_ms_max=self._delay_ms_max)
            self._links[source, target] = found
        return found

    def _port(self, host: str) -> int:
        self._last_ports[host] += 1
        return EPHEMERAL_PORT + self._last_ports[host]

    # For processes

    def listen(
        self,
        process: Process,
        port: int,
        accept: Callable[[Connection], ConnectionHandler],
        backlog: int,
        tls: TlsServer | None = None,
        on_tls: OnTls | None = None,
    ) -> SimListener:
        address = (process.name, port or self._port(process.name))
        before = self._listeners.get(address)
        if before is not None and not before.is_dying:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {address[0]}:{address[1]}: address in use")
        listener = SimListener(process, address, accept, backlog, self._close, tls, on_tls)
        self._listeners[address] = listener
        return listener

    def _close(self, listener: SimListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def connect(self, process: Process, address: Address, tls: TlsClient | None = None) -> SimConnection:
        """Returns the process's end of a connection that is not open yet."""
        source, target = process.name, address[0]
        if target not in self._hosts:
            raise OSError(errno.EHOSTUNREACH, f"no host is named {target}")
        local = (source, self._port(source))
        ours = SimConnection(self, self.link(source, target), local, address)
        theirs = SimConnection(self, self.link(target, source), address, local)
        ours.other, theirs.other = theirs, ours
        ours.process, ours.tls = process, tls
        ours.opened = asyncio.get_running_loop().create_future()
        self._connections[ours] = None
        ours.say(Signal.OPEN)
        return ours

    # For connections

    def on_open(self, connection: SimConnection) -> None:
        asks = connection.other
        listener = self._listeners.get(connection.local)
        link = self.link(asks.host, connection.host)
        if listener is None or link.is_refused:
            connection.say(Signal.REFUSED)
        elif listener.is_dying:
            self.counts["accepted, then reset"] += 1
            connection.vanish()
            connection.say(Signal.OPENED)
            connection.say(Signal.RESET)
        elif listener.is_full:
            self.counts["backlog full"] += 1
            link.carry(lambda: self.on_open(connection), after_ms=BACKLOG_RETRY_MS)
        elif not self._has_shaken_hands(connection, listener):
            connection.say(Signal.REFUSED)
        else:
            connection.listener, connection.process = listener, listener.process
            self._connections[connection] = None
            connection.say(Signal.OPENED)

    def _has_shaken_hands(self, connection: SimConnection, listener: SimListener) -> bool:
        """True when both ends speak TLS and trust each other, or neither does. A client in the clear learns only that it is refused."""
        try:
            connection.tls_peer = handshake(listener.tls, connection.other.tls)
        except TlsError as error:
            self.counts["TLS handshake failed"] += 1
            connection.other.refusal = error if connection.other.tls is not None else None
            return False
        return True

    def on_arrival(self, connection: SimConnection, size: int) -> None:
        local, peer = connection.local, connection.peer
        self._trace.add(f"{peer[0]}:{peer[1]} -> {local[0]}:{local[1]} {size}")

    def forget(self, connection: SimConnection) -> None:
        self._connections.pop(connection, None)

    # Processes and machines come and go

    def leave(self, process: Process, *, in_order: bool = False) -> None:
        """Ends the process's connections, and soon closes its ports. ``in_order``: the process exited by itself, and left nothing open."""
        loop = _loop()
        for listener in [found for found in self._listeners.values() if found.process is process]:
            listener.is_dying = True
            delay_ms = 0.0 if in_order else self._rng.random() * DYING_MS_MAX
            loop.at(loop.now + delay_ms / 1000, self._close, listener)
        for connection in [found for found in self._connections if found.process is process]:
            is_reset = not in_order and (connection.has_unread or self._rng.random() < 0.5)
            connection.vanish()
            if is_reset:
                connection.lose_all()
            connection.say(Signal.RESET if is_reset else Signal.END)

    def switch_off(self, host: str) -> None:
        """Switches the host's power off: it falls silent, and loses its connections and what it had not sent."""
        self._trace.add(f"{host} is off")
        self._hosts[host].is_off = True
        for listener in [found for found in self._listeners.values() if found.address[0] == host]:
            self._close(listener)
        for connection in [found for found in self._connections if found.host == host]:
            connection.lose_all()
            connection.vanish()

    def switch_on(self, host: str) -> None:
        """Switches the host's kernel on, if it was off."""
        if self._hosts[host].is_off:
            self._hosts[host].is_off = False
            self._release(host)

    # Faults

    def darken(self, host: str) -> None:
        """Isolates the host: nothing reaches it, and nothing leaves it. The host does not notice."""
        self._trace.add(f"{host} dark")
        self._hosts[host].is_dark = True

    def lighten(self, host: str) -> None:
        self._trace.add(f"{host} not dark any more")
        self._hosts[host].is_dark = False
        self._release(host)

    def cut_link(self, source: str, target: str) -> None:
        """Cuts the link: nothing that ``source`` sends reaches ``target``."""
        self._trace.add(f"link {source} -> {target} cut")
        self.link(source, target).is_cut = True

    def join_link(self, source: str, target: str) -> None:
        """Joins the link again; what was held arrives."""
        self._trace.add(f"link {source} -> {target} joined")
        link = self.link(source, target)
        link.is_cut = False
        link.release()

    def refuse(self, source: str, target: str, *, refuses: bool = True) -> None:
        """Rejects what the source sends to the target's listeners, as a firewall does: with a refusal, or a reset."""
        self._trace.add(f"link {source} -> {target} {'refused' if refuses else 'not refused any more'}")
        self.link(source, target).is_refused = refuses

    def slow_link(self, source: str, target: str, ms: float) -> None:
        """Slows the link: what ``source`` sends takes that much longer to reach ``target``."""
        self._trace.add(f"link {source} -> {target} slow by {ms} ms")
        self.link(source, target).slow_ms = ms

    def clog_link(self, source: str, target: str, ms: float) -> None:
        """Clogs the link: what ``source`` sends reaches ``target`` after that time, all at once."""
        self._trace.add(f"link {source} -> {target} clogged for {ms} ms")
        self.link(source, target).clog(ms)

    def break_connections(self, host: str, *, opened_to: str | None = None) -> None:
        """Breaks every connection of the host, wherever in a frame it was; or those that it has opened to one other host."""
        self._trace.add(f"connections of {host} to {opened_to or 'all'} broken")
        for connection in [found for found in self._connections if found.host == host]:
            if opened_to in (None, connection.peer[0]) and (opened_to is None or connection.opened is not None):
                for end in (connection, connection.other):
                    end.fail(ConnectionResetError(errno.ECONNRESET, "the link broke"))

    def heal(self) -> None:
        """Mends every link, and reconnects every dark host; what was held arrives."""
        self._trace.add("links healed")
        for host in self._hosts.values():
            host.is_dark = False
        for link in self._links.values():
            link.mend()

    def _release(self, host: str) -> None:
        for names, link in self._links.items():
            if host in names:
                link.release()


class SimNetwork:
    """ports.Network, as one process sees it. Every address of its host is the host's name."""

    def __init__(self, fabric: Fabric, process: Process) -> None:
        self._fabric = fabric
        self._process = process

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
    ) -> SimListener:
        await alive()
        return self._fabric.listen(self._process, port, accept, backlog, tls, on_tls)

    async def addresses_of(self, host: str) -> Sequence[str]:
        await alive()
        return (host,)

    def check_tls(self, tls: TlsServer | TlsClient) -> None:
        """Does nothing: names are always good."""

    def check_handshake(self, server: TlsServer, client: TlsClient) -> None:
        try:
            handshake(server, client)
        except TlsError as error:
            raise ValueError(str(error)) from None

    async def connect(
        self,
        host: str,
        port: int,
        make_handler: Callable[[Connection], ConnectionHandler],
        *,
        receive_buffer_bytes: int = -1,
        tls: TlsClient | None = None,
    ) -> SimConnection:
        await alive()
        connection = self._fabric.connect(self._process, (host, port), tls)
        assert connection.opened is not None, "a connection is being opened"
        loop = _loop()
        late = TimeoutError(errno.ETIMEDOUT, f"{host}:{port} does not answer")
        timer = loop.at(loop.now + CONNECT_SECONDS_MAX, connection.fail, late, context=self._process.context)
        try:
            await connection.opened
        except BaseException as error:
            self._fabric.counts[f"connecting ended with {type(error).__name__}"] += 1
            connection.vanish()
            connection.say(Signal.RESET)
            raise
        finally:
            timer.cancel()
        connection.start(make_handler(connection))
        return connection


def _loop() -> SimLoop:
    return cast(SimLoop, asyncio.get_running_loop())
