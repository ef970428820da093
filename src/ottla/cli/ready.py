"""Clients are served: the ready file says so, and the service manager is notified."""

from __future__ import annotations

import os
import socket


def report_ready(addresses: str, ready_file: str | None) -> None:
    """Reports ``host:port``, of several brokers with commas. The file appears complete, by a rename."""
    if ready_file is not None:
        temporary = ready_file + ".tmp"
        with open(temporary, "w") as out:
            out.write(f"{addresses}\n")
        os.rename(temporary, ready_file)
    notify("READY=1")


def notify(state: str) -> None:
    """Reports ``state``, for example READY=1; does nothing where no service manager asked for it. Source: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # the abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as messenger:
        messenger.sendto(state.encode(), address)
