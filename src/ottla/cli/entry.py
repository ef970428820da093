"""The console script. Until a command's modules are imported nothing is open, and a Ctrl-C ends the process at once.

As a KeyboardInterrupt it would be a traceback there, or be lost: Python drops one that comes in the weak references of its import system.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Runs the command that the arguments name."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell ignores it for what runs in the background
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ottla.cli import main as commands

    commands.import_command(sys.argv[1:2])
    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    commands.main()
