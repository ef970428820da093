"""The ottla command in a process that counts the bytes of files it sends and reads; ``counts`` beside the ready file lists them.

Run by tests as ``python -m tests.foreign_clients.counting_broker broker start ... --ready-file FILE``. The two calls of ``os`` are wrapped
before anything of ottla is imported, and do what they always do.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

COUNTS_NAME = "counts"


def main() -> None:
    counts = {"sendfile": 0, "pread": 0}
    real_sendfile, real_pread = os.sendfile, os.pread

    def sendfile(*arguments: Any) -> int:
        sent = real_sendfile(*arguments)
        counts["sendfile"] += sent
        return sent

    def pread(*arguments: Any) -> bytes:
        data = real_pread(*arguments)
        counts["pread"] += len(data)
        return data

    setattr(os, "sendfile", sendfile)  # noqa: B010 - mypy would compare the signatures
    setattr(os, "pread", pread)  # noqa: B010
    from ottla.cli.main import main as run

    try:
        run()
    finally:
        ready_file = Path(sys.argv[sys.argv.index("--ready-file") + 1])
        ready_file.with_name(COUNTS_NAME).write_text(json.dumps(counts))


if __name__ == "__main__":
    main()
