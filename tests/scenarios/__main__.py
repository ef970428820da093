"""Writes what the machines answer now into the transcripts that are named."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.scenarios.machines import player_of
from tests.scenarios.transcript import replayed

for name in sys.argv[1:]:
    path = Path(name)
    path.write_text(replayed(path.read_text(), player_of(path)))
