"""How long a cluster of three nodes is without a controller after kill -9 of the active one, under load, on default timeouts.

``python -m bench.failover [KILLS]``. What is acknowledged is checked as in tests/cluster/test_killing.py.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.cluster.killing import run

KILLS: Final = 20


def main() -> None:
    kill_count = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(f"{run(Path(folder), kill_count=kill_count)}\n")


if __name__ == "__main__":
    main()
