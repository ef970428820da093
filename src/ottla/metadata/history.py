"""The images of one node: what is committed, and what its leader has decided beyond that.

A leader decides over the draft, which has every decision that was taken; others see an image once the high watermark of the metadata
log has reached its end. A leader that resigns drops the rest: it may never be committed. Images never change, so each
point in between is kept at the price of what was changed. Source: KIP-595, KIP-631.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ottla.metadata.image import ClusterImage
from ottla.metadata.replay import ImageBuilder, replay
from ottla.wire.schema import Stored


class ImageHistory:
    """Invariant: committed <= sealed <= draft, in offsets."""

    def __init__(self, image: ClusterImage) -> None:
        self.committed = image
        """The image that all may see."""
        self._sealed: deque[ClusterImage] = deque()  # beyond what is committed, oldest first
        self._builder = ImageBuilder(image)
        self._appended: list[Stored] = []  # since the newest of them

    @property
    def draft(self) -> ClusterImage:
        """After every appended record: decisions are taken over this one, and the next append changes it."""
        return self._builder.draft

    @property
    def draft_end_offset(self) -> int:
        """The end of the draft, which is not settled for it."""
        return self._builder.end_offset

    def settle(self, count: int) -> bool:
        """Carries out ``count`` changes of ACLs that were appended; whether none is left. ``draft`` and ``seal`` do so with all."""
        return self._builder.settle(count)

    def append(self, records: Sequence[Stored], *, end_offset: int, epoch: int) -> None:
        """Appends the records, which end at ``end_offset`` of the log, to the draft: all of them, or none when one does not fit."""
        try:
            for record in records:
                self._builder.add(record)
        except Exception:  # our own mistake: the draft is again what the log says
            draft = self._builder.draft
            self._builder = ImageBuilder(replay(self._newest, self._appended))
            self._builder.move_to(draft.end_offset, draft.epoch)
            raise
        self._appended += records
        self._builder.move_to(end_offset, epoch)

    def seal(self) -> ClusterImage:
        """Returns the draft as an image that never changes; it is committed when its end is."""
        if self.draft_end_offset != self._newest.end_offset:
            self._sealed.append(self._builder.image())
            self._appended.clear()
        return self._newest

    @property
    def _newest(self) -> ClusterImage:
        return self._sealed[-1] if self._sealed else self.committed

    def commit(self, high_watermark: int) -> ClusterImage:
        """Returns the newest image below ``high_watermark``, up to which the log is committed."""
        while self._sealed and self._sealed[0].end_offset <= high_watermark:
            self.committed = self._sealed.popleft()
        return self.committed

    def start_over(self, image: ClusterImage) -> None:
        """Makes the image the committed one, with no decision beyond it."""
        self.committed = image
        self.drop_uncommitted()

    def drop_uncommitted(self) -> None:
        """Resets the draft to what is committed: this node no longer leads."""
        self._sealed.clear()
        self._appended.clear()
        self._builder = ImageBuilder(self.committed)
