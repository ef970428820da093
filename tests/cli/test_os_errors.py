"""What a command says next where the operating system has refused something."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest

from ottla.cli.output import with_way_out
from ottla.console.serving import serve
from ottla.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", [".lock", "meta.properties.tmp"])
@pytest.mark.parametrize("is_storage", [False, True])
def test_a_right_that_is_missing_names_the_owner_and_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_storage: bool, name: str
) -> None:
    """Root has formatted the directory, and the unit runs the broker as another user."""
    path = str(tmp_path / "data" / name)
    error: Exception = PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    if is_storage:
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tmp_path}/data, which holds the metadata log, cannot be opened: {error}")
    owner = tmp_path.owner()
    assert f"; {tmp_path} belongs to {owner}, as whom this process runs: its mode forbids it" in with_way_out(error)
    monkeypatch.setattr("os.geteuid", lambda: 65_500)
    runs = f"belongs to {owner}, and this process runs as 65500: run it as {owner}, or"
    assert f"; {tmp_path} {runs} have {tmp_path}/data made for 65500" in with_way_out(error), "and nothing above it is another user's"
    (tmp_path / "data").mkdir()
    assert f"; {tmp_path}/data {runs} `chown -R 65500 {tmp_path}/data`" in with_way_out(error)


@pytest.mark.parametrize(
    ("number", "end"),
    [
        (errno.EROFS, "it is mounted read-only"),
        (errno.EROFS, "name another directory (`log.dirs` of a node, `--data` of a command);"),
        (errno.EADDRINUSE, "another process listens there, or an outgoing connection has the port"),
        (errno.EACCES, "a port below 1024 needs a right of root: take another one"),
        (errno.EADDRNOTAVAIL, "`listeners` has addresses of this machine, or 0.0.0.0"),
        (socket.EAI_NONAME, "`advertised.listeners` has what clients reach"),
    ],
)
def test_an_address_on_which_a_broker_cannot_listen_has_a_way_out(number: int, end: str) -> None:
    assert end in with_way_out(OSError(number, "cannot listen on 10.0.0.9:80: no"))


def test_the_port_of_the_admin_pages_is_that_of_their_own_key() -> None:
    pages = with_way_out(OSError(errno.EADDRINUSE, "ottla.admin.listener cannot listen on 127.0.0.1:9644: in use"))
    assert "or `ottla.admin.listener` of the file" in pages
    assert "or `listeners` of the file" in with_way_out(OSError(errno.EADDRINUSE, "cannot listen on 127.0.0.1:9644: in use"))


def test_the_port_of_the_console_is_that_of_its_option() -> None:
    """It named `listeners`, which is a key of brokers."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"the console cannot listen on 127.0.0.1:{port}") as refused:
            asyncio.run(serve("127.0.0.1:9", {}, port=port))
    assert "or take another port (`--port`; 0 picks a free one)" in with_way_out(refused.value)


def test_a_file_of_another_user_in_a_directory_of_ones_own_is_what_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that the mode of the directory forbids it, of which the one who runs the command is the owner."""
    (tmp_path / "meta.properties").write_text("")
    owner = tmp_path.owner()
    monkeypatch.setattr("os.geteuid", lambda: 65_500)
    error = PermissionError(errno.EACCES, "Permission denied", f"{tmp_path}/meta.properties")
    runs = f"belongs to {owner}, and this process runs as 65500: run it as {owner}, or `chown -R 65500 {tmp_path}`"
    assert f"; {tmp_path}/meta.properties {runs}" in with_way_out(error)
