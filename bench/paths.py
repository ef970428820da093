"""Zero copy and its contrast: cached megabytes sent from a file by sendfile, and by read and send through Python's memory.

The traditional path copies each byte four times (disk cache to the reader, reader to the socket, and twice by the devices);
sendfile leaves out the two in the middle. Both are the broker's own code: the second one is its way where sendfile is missing.
"""

from __future__ import annotations

import statistics
import sys
from typing import ClassVar, Final

from bench.generator import fetch_frame, pipelined
from bench.measures import SECONDS, prepare_when_served
from bench.peers import Ottla

ROUNDS: Final = 3


class Copying(Ottla):
    """The broker told not to use sendfile."""

    name = "ottla-copying"
    environment: ClassVar = {"OTTLA_PATHS": "copy"}


def main() -> None:
    figures: dict[str, list[tuple[float, float]]] = {"sendfile": [], "read and send": []}
    with Ottla() as zero_copy, Copying() as copying:
        for peer in (zero_copy, copying):
            prepare_when_served(peer)
        request = fetch_frame("fetched", 0, offset=0, max_bytes=1 << 20)
        for number in range(ROUNDS + 1):
            for name, peer in (("sendfile", zero_copy), ("read and send", copying)):
                cpu = peer.cpu_seconds()
                result = pipelined(peer.address, [request], window=8, seconds=SECONDS)
                if number:
                    figures[name].append((result.megabytes_per_second, (peer.cpu_seconds() - cpu) / (result.response_bytes / 1e9)))
    for name, rounds in figures.items():
        rate, cpu = (statistics.median(values) for values in zip(*rounds, strict=True))
        sys.stdout.write(f"cached fetch, 1 MiB, {name.ljust(13)}  {rate:8,.0f} MB/s  {cpu:.2f} CPU s/GB\n")


if __name__ == "__main__":
    main()
