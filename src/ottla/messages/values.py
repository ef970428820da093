"""Types that declarations share."""

from __future__ import annotations

from ottla.ports import Buffer, FileRegion

Records = Buffer | FileRegion
"""Record batches, as bytes in memory or in a file; a codec passes them on without looking."""
