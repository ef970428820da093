"""What a service reports to systemd (``Type=notify``). Source: sd_notify(3)."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Reports ``state``, for example READY=1; nothing happens where no service manager asked for it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # the abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as messenger:
        messenger.sendto(state.encode(), address)
