"""Whether a process is stopped by a signal (SIGSTOP, Ctrl-Z): it lives, and does nothing until SIGCONT. Known on Linux alone."""

from __future__ import annotations

PAUSED = "stopped (SIGSTOP)"
"""What is shown as the state of such a process."""


def is_paused(pid: int) -> bool:
    """Returns whether the process is stopped by a signal; False where that is not known. Source: proc_pid_stat(5)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as found:
            return found.read().rpartition(b") ")[2][:1] in {b"T", b"t"}
    except OSError:
        return False
