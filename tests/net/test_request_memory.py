"""What requests may hold: who goes on while memory is short, and who ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.net.request_memory import COMPLETE_MS, DEFAULT_BYTES_MAX, RequestMemory, Share


@dataclass
class Peers:
    """Connections that send frames, each of which holds what it was let send."""

    bytes_max: int = 100
    frame_max: int = 80
    now_ms: int = 0
    ended: list[Share] = field(default_factory=list)
    full: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory = RequestMemory(
            bytes_max=self.bytes_max, frame_bytes_max=self.frame_max, now_ms=lambda: self.now_ms, on_full=self._note_full
        )  # fmt: skip

    def _note_full(self) -> None:
        self.full.append(self.memory.is_full)

    def connect(self) -> Share:
        def end() -> None:
            self.ended.append(share)
            share.end()

        share = self.memory.share(lambda: None, end)
        return share

    def sends(self, received: int, missing: int) -> Share:
        share = self.connect()
        share.receive(received, missing)
        return share


def test_nobody_waits_while_there_is_room() -> None:
    peers = Peers()
    shares = [peers.sends(20, 60) for _ in range(5)]
    assert not any(share.is_waiting for share in shares)
    assert not peers.memory.is_short


def test_while_memory_is_short_those_go_on_that_miss_the_least() -> None:
    peers = Peers()
    large = [peers.sends(20, 60) for _ in range(5)]
    small = peers.sends(10, 5)
    assert peers.memory.is_short
    assert not small.is_waiting
    assert [share.is_waiting for share in large] == [False, True, True, True, True], "5 and 60 are room for no other 60"
    small.receive(15, 0)
    large[0].receive(80, 0)
    assert [share.is_waiting for share in large] == [False, False, True, True, True], "80 bytes are held: short until it is half"
    for share in large[1:3]:
        share.receive(80, 0)
    assert not peers.memory.is_short
    assert not any(share.is_waiting for share in large)
    assert not peers.ended


def test_one_goes_on_however_much_it_misses() -> None:
    peers = Peers(bytes_max=10, frame_max=1000)
    first, second = peers.sends(6, 900), peers.sends(6, 900)
    assert (first.is_waiting, second.is_waiting) == (False, True)
    first.receive(700, 206)
    assert (first.is_waiting, second.is_waiting) == (False, True)
    first.receive(906, 0)
    assert (peers.memory.held, second.is_waiting) == (6, False)


def test_a_connection_that_may_go_on_and_sends_nothing_is_ended() -> None:
    peers = Peers()
    silent, waiting = peers.sends(60, 20), peers.sends(60, 90)
    assert (silent.is_waiting, waiting.is_waiting) == (False, True)
    peers.now_ms = COMPLETE_MS - 1
    peers.memory.look()
    assert not peers.ended
    peers.now_ms = COMPLETE_MS
    peers.memory.look()
    assert peers.ended == [silent], "who waits is not to blame"
    assert (waiting.is_waiting, peers.memory.held) == (False, 60)


def test_a_reading_connection_is_not_ended_for_bytes_that_others_received() -> None:
    peers = Peers()
    first, *others = [peers.sends(20, 60) for _ in range(6)]
    first.receive(79, 1)
    others += [peers.sends(1, 79) for _ in range(10)]  # whoever connects brings a receive
    assert peers.memory.held == 79 + 100 + 10
    assert not peers.ended
    first.receive(80, 0)
    assert [share.is_waiting for share in others[:2]] == [False, True], "it is the next one's turn"


def test_above_twice_the_bound_and_a_frame_the_largest_holder_is_ended() -> None:
    """As where many connections bring the first bytes of a frame each, or complete ones that wait for their turn."""
    peers = Peers()
    shares = [peers.sends(10, 60) for _ in range(20)]
    hoarder = peers.connect()
    hoarder.keep(75)
    assert not peers.ended
    shares.append(peers.sends(10, 60))
    assert peers.ended == [hoarder]
    assert peers.memory.held == 210
    hoarder.keep(50)
    assert peers.memory.held == 210, "of one that has ended nothing is counted"


def test_too_much_memory_in_work_stops_all_reading_until_half_of_it_is_done() -> None:
    peers = Peers()
    first, second = peers.connect(), peers.connect()
    first.begin_work(80)
    second.begin_work(40)
    assert peers.full == [True]
    second.begin_work(-40)
    assert peers.full == [True]
    first.end()
    assert peers.full == [True, False]


def test_a_connection_that_ends_leaves_its_room_to_others() -> None:
    peers = Peers()
    first, second = peers.sends(60, 70), peers.sends(60, 80)
    assert second.is_waiting
    first.end()
    assert (peers.memory.held, second.is_waiting) == (60, False)


def test_without_a_configured_bound_there_is_one() -> None:
    assert RequestMemory(bytes_max=-1, frame_bytes_max=1, now_ms=lambda: 0).bytes_max == DEFAULT_BYTES_MAX
