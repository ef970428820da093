"""The directory of a cluster on one machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from ottla.cli.nodes.place import Place, PlaceState
from ottla.runtime.supervision.control import SOCKET_NAME


def test_a_supervisor_whose_directory_was_deleted_leaves_that_of_the_next_one_alone(tmp_path: Path) -> None:
    """`rm -r` while a cluster ran, and another start: the end of the first took the socket of the second, and no command reached that."""
    directory = tmp_path / "cluster"
    first, second = Place(str(directory)), Place(str(directory))
    first.lock()
    first.write_state(PlaceState("first", 1, "127.0.0.1:9092", []))
    shutil.rmtree(directory)
    second.lock()
    second.write_state(PlaceState("second", 2, "127.0.0.1:9095", []))
    (directory / SOCKET_NAME).touch()
    first.write_state(PlaceState("first", 1, "127.0.0.1:9092", []))
    first.remove_state()
    assert second.state() == PlaceState("second", 2, "127.0.0.1:9095", [])
    assert (directory / SOCKET_NAME).exists()
    second.remove_state()
    assert second.state() is None
    assert not (directory / SOCKET_NAME).exists()
