"""``ottla cluster start --detach``: the shell is free once clients are served, and the supervisor runs on in a session of its own.

The supervisor is the same command again. It says that all nodes serve through a pipe that it alone has, and what it has to say afterwards
goes to ``supervisor.log`` in the cluster's directory. Before that its words are the command's, and so is its exit code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Final

from ottla.cli.nodes.place import Place

READY_VARIABLE: Final = "OTTLA_READY_DESCRIPTOR"
LOG_FILE: Final = "supervisor.log"


def start_detached(arguments: Sequence[str]) -> int:
    """Waits until all nodes serve, and the announcement is printed; or the supervisor has ended. Returns the exit code."""
    readable, writable = os.pipe()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "cluster", "start", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | {READY_VARIABLE: str(writable)},
            pass_fds=(writable,),
            start_new_session=True,  # neither Ctrl-C here nor the end of the terminal is for it
        )
        os.close(writable)
        try:
            with open(readable, "rb") as pipe:
                announcement = pipe.read()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)  # a child of ours, which has not been waited for: the id is its own
            process.wait()
            announcement = b""
        errors.seek(0)
        sys.stderr.write(errors.read().decode(errors="replace"))
    if announcement:
        sys.stdout.write(announcement.decode())
        return 0
    return process.wait() or 1


def take_descriptor() -> int | None:
    """Returns where the command that started this one waits for the announcement; nodes do not inherit it."""
    text = os.environ.pop(READY_VARIABLE, None)
    if text is None:
        return None
    os.set_inheritable(int(text), False)
    return int(text)


def announce_detached(descriptor: int, announcement: str, place: Place) -> None:
    """Sends the announcement to the command that waits, which ends; what this process says from now on goes to the directory."""
    log = os.open(os.path.join(place.path, LOG_FILE), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, sys.stderr.fileno())
    os.close(log)
    with open(descriptor, "w") as pipe:
        try:
            pipe.write(announcement)
            pipe.flush()
        except OSError:
            return  # the waiting command has ended, and the cluster serves
