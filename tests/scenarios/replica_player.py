"""The machines of a partition's leader and its followers behind a transcript. Replicas are numbers; time passes only by ``advance``.

==============================================  =====================================================================
``logs NODE=EPOCHxCOUNT,... ...``               what each replica has; all of it was committed as far as ``high`` says
``high NODE=OFFSET ...``                        the high watermark that each knows
``elect NODE isr=1,2,3 [min=2]``                the next epoch begins, which that replica leads
``append COUNT``                                the leader writes
``fetch NODE``                                  the follower asks and gets its answer; it does what that says
``ask NODE`` ``arrive NODE``                    the same in two steps: what is on its way may come late
``silence MS``                                  so much time passes in which nobody fetches, and the leader looks who lags
``recorded`` ``refused``                        the controller answers what it was asked for
==============================================  =====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ottla.errors import ErrorCode
from ottla.messages.fetch import EpochEndOffset, PartitionData
from ottla.metadata.image import PartitionImage
from ottla.records.epochs import EpochCache
from ottla.replication.follower import Append, Followed, Truncate
from ottla.replication.high_watermark import HighWatermark
from ottla.replication.leader import IsrChange, Leader

LAG_MS: Final = 30_000
REPLICAS: Final = (1, 2, 3)


@dataclass(slots=True)
class Replica:
    """A log of epochs, of whose records nothing but the offset counts."""

    epochs: EpochCache = field(default_factory=EpochCache)
    log_end_offset: int = 0
    high_watermark: int = 0
    followed: Followed | None = None
    committed: HighWatermark = field(default_factory=HighWatermark)
    log_start_offset: int = 0

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, log_end_offset=self.log_end_offset)

    def __str__(self) -> str:
        starts = [*(start for _, start in self.epochs.entries), self.log_end_offset]
        return ",".join(f"{epoch}x{end - start}" for (epoch, start), end in zip(self.epochs.entries, starts[1:], strict=True)) or "nothing"


class ReplicaPlayer:
    def __init__(self) -> None:
        self._replicas = {node: Replica() for node in REPLICAS}
        self._now_ms = self._epoch = self._partition_epoch = 0
        self._leader_id = 0
        self._leader: Leader
        self._asked: IsrChange | None = None
        self._on_its_way: dict[int, tuple[int, int, PartitionData]] = {}

    def __call__(self, line: str) -> list[str]:
        name, *arguments = line.split()
        out: list[str] = getattr(self, f"_{name}")(*arguments)
        return [*out, *self._told()]

    def _told(self) -> list[str]:
        """What the leader has come to know."""
        if not self._leader_id:
            return []
        own, out = self._replicas[self._leader_id], list[str]()
        if own.high_watermark != self._leader.high_watermark:
            own.high_watermark = self._leader.high_watermark
            out.append(f"{self._leader_id} high watermark {own.high_watermark}")
        if (change := self._leader.take_change()) is not None:
            self._asked = change
            out.append(f"{self._leader_id} asks for isr {','.join(str(node) for node, _ in change.isr)}")
        return out

    def _logs(self, *given: str) -> list[str]:
        for one in given:
            node, _, text = one.partition("=")
            replica = self._replicas[int(node)] = Replica()
            for part in text.split(","):
                epoch, _, count = part.partition("x")
                replica.epochs.assign(int(epoch), replica.log_end_offset)
                replica.log_end_offset += int(count)
                self._epoch = max(self._epoch, int(epoch))
        return []

    def _high(self, *given: str) -> list[str]:
        for one in given:
            node, _, offset = one.partition("=")
            self._replicas[int(node)].high_watermark = int(offset)
        return []

    def _elect(self, node: str, *options: str) -> list[str]:
        given = dict(option.partition("=")[::2] for option in options)
        isr = tuple(map(int, given["isr"].split(",")))
        self._leader_id, own = int(node), self._replicas[int(node)]
        self._epoch += 1
        self._partition_epoch += 1
        own.epochs.assign(self._epoch, own.log_end_offset)
        own.followed = None
        image = PartitionImage(REPLICAS, isr, self._leader_id, self._epoch, self._partition_epoch)
        self._leader = Leader(
            self._leader_id, image, epoch_start_offset=own.log_end_offset, end_offset=own.log_end_offset,
            committed=HighWatermark(own.high_watermark), min_isr=int(given.get("min", "1")), lag_ms_max=LAG_MS,
            may_join=lambda node, epoch: True, now_ms=self._now_ms,
        )  # fmt: skip
        for other, replica in self._replicas.items():
            if other != self._leader_id:
                replica.committed = HighWatermark(replica.high_watermark)
                replica.followed = Followed(self._leader_id, self._epoch, committed=replica.committed, backoff_ms=1000)
        known = "knows what is committed" if self._leader.knows_what_is_committed else "does not know yet what is committed"
        return [f"{node} leads epoch {self._epoch} from {own.log_end_offset} on, and {known}"]

    def _append(self, count: str) -> list[str]:
        own = self._replicas[self._leader_id]
        own.log_end_offset += int(count)
        self._leader.advance(own.log_end_offset, self._now_ms)
        return []

    def _fetch(self, node: str) -> list[str]:
        return [*self._ask(node), *self._arrive(node)]

    def _ask(self, node: str) -> list[str]:
        asking, own = self._replicas[int(node)], self._replicas[self._leader_id]
        offset, epoch = asking.log_end_offset, asking.epochs.latest_epoch
        data = PartitionData(0)
        found, end = own.end_offset_for_epoch(epoch)
        if epoch >= 0 and found < 0:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif epoch >= 0 and not (found == epoch and end >= offset):
            data.diverging_epoch = EpochEndOffset(found, end)
        else:
            self._leader.on_fetch(
                int(node), broker_epoch=100, offset=offset, start_offset=0, end_offset=own.log_end_offset, now_ms=self._now_ms
            )
            data.records = b"r" * (own.log_end_offset - offset)
        data.high_watermark, data.log_start_offset = self._leader.high_watermark, 0
        self._on_its_way[int(node)] = offset, self._epoch, data
        return []

    def _arrive(self, node: str) -> list[str]:
        replica, (offset, epoch, data) = self._replicas[int(node)], self._on_its_way.pop(int(node))
        followed = replica.followed
        if followed is None:
            return [f"{node} leads, and drops what was on its way"]
        before = followed.high_watermark
        step = followed.on_answer(offset, epoch, data, replica, self._now_ms)
        if epoch != followed.leader_epoch:
            assert step is None
            return [f"{node} drops what was asked for in epoch {epoch}"]
        out = [] if step is None or isinstance(step, Append | Truncate) else [f"{node}: {type(step).__name__}"]
        if isinstance(step, Truncate):
            replica.epochs.truncate_from_end(step.end_offset)
            replica.log_end_offset = step.end_offset
            replica.committed.cut_to(step.end_offset)
            out.append(f"{node} cuts to {step.end_offset}, and has {replica}")
        elif isinstance(step, Append):
            own = self._replicas[self._leader_id]
            for started, start in own.epochs.entries:
                if start >= replica.log_end_offset or started == own.epochs.epoch_at(replica.log_end_offset):
                    replica.epochs.assign(started, max(start, replica.log_end_offset))
            replica.log_end_offset += len(step.records)
            followed.leader_high_watermark(data.high_watermark, replica)
            out.append(f"{node} has {replica}")
        if followed.high_watermark != before:
            out.append(f"{node} high watermark {followed.high_watermark}")
        replica.high_watermark = followed.high_watermark
        return out

    def _silence(self, ms: str) -> list[str]:
        self._now_ms += int(ms)
        self._leader.look_for_laggards(self._replicas[self._leader_id].log_end_offset, self._now_ms)
        return []

    def _recorded(self) -> list[str]:
        assert self._asked is not None, "the controller was asked for nothing"
        self._partition_epoch += 1
        isr, end_offset = [node for node, _ in self._asked.isr], self._replicas[self._leader_id].log_end_offset
        self._leader.on_changed(self._asked, partition_epoch=self._partition_epoch, isr=isr, end_offset=end_offset, now_ms=self._now_ms)
        return [f"isr {','.join(map(str, self._leader.isr))}"]

    def _refused(self) -> list[str]:
        assert self._asked is not None, "the controller was asked for nothing"
        self._leader.on_refused(self._asked, ErrorCode.INELIGIBLE_REPLICA)
        return [f"isr {','.join(map(str, self._leader.isr))}, at most {','.join(map(str, self._leader.maximal_isr))}"]
