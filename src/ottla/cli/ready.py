"""Clients are served: the ready file says so, and the service manager is notified."""

from __future__ import annotations

import os

from ottla.runtime.notify import notify


def report_ready(addresses: str, ready_file: str | None) -> None:
    """Reports ``host:port``, of several brokers with commas. The file appears complete, by a rename."""
    if ready_file is not None:
        temporary = ready_file + ".tmp"
        with open(temporary, "w") as out:
            out.write(f"{addresses}\n")
        os.rename(temporary, ready_file)
    notify("READY=1")
