"""The documentation as a site: it is built offline, and every link of it leads somewhere (``make docs``)."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.interop.tools import run

ROOT = Path(__file__).parents[2]


def test_the_site_is_built_and_has_no_dead_link_and_nothing_from_elsewhere() -> None:
    assert "pages in build/site" in run(sys.executable, ROOT / "scripts" / "site.py", seconds_max=120)
