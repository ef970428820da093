"""The verdicts of ``ottla check-history`` and of porcupine, a checker of linearizability, on the same histories.

What porcupine judges is written at the head of porcupine/main.go: each partition is a log whose appends return offsets, whose polls
return what is there, and all that clients did and saw has to fit one order of operations, each between its beginning and its end. Of the
anomalies of ``ottla.history`` these are breaches of it; those of commits and of transactions are not compared.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import wait_for_in_sync
from tests.interop.recording import PARTITION_COUNT, PLANTED, answer_lost, record
from tests.interop.tools import HERE, TARGET, program, run

from ottla.history.judge import judge
from ottla.history.operations import Operation, write_history
from ottla.sync import Admin, NewTopic

HISTORY_COUNT = 100
KILL_EVERY = 5


@pytest.fixture(scope="module")
def porcupine() -> Path:
    """The program, built from this directory and the Go module proxy."""
    go = program("go", way_to_get_it="https://go.dev/dl")
    made = TARGET / "porcupine" / "judge"
    made.parent.mkdir(parents=True, exist_ok=True)
    run(go, "build", "-o", made, ".", cwd=HERE / "porcupine", seconds_max=300)
    return made


def test_the_verdicts_of_porcupine_and_of_check_history_agree_on_a_hundred_recorded_histories(tmp_path: Path, porcupine: Path) -> None:
    """A fifth of them with a kill of a leader; half of them with a planted anomaly, or with answers that nobody got."""
    kinds = [*PLANTED, "answer-lost"]
    wanted: dict[str, str] = {}
    found: Counter[str] = Counter()
    (tmp_path / "cluster").mkdir()
    with ClusterProcesses(tmp_path / "cluster", min_insync_replicas="2") as cluster, Admin(cluster.bootstrap) as admin:
        for number in range(HISTORY_COUNT):
            operations = recorded(cluster, admin, f"t{number}", has_kill=number % KILL_EVERY == 0)
            kind = kinds[number // 2 % len(kinds)] if number % 2 else "as recorded"
            random = Random(f"{number} {kind}")
            if kind in PLANTED:
                operations = PLANTED[kind](operations, random)
            elif kind == "answer-lost":
                operations = answer_lost(operations, random)
            path = tmp_path / f"{number}-{kind.replace(' ', '-')}.jsonl"
            path.write_bytes(b"".join(write_history(operations)))
            anomalies = {anomaly.kind for anomaly in judge(operations).anomalies}
            assert (kind in anomalies) == (kind in PLANTED), f"{path.name}: {anomalies}"
            wanted[str(path)] = "Illegal" if anomalies else "Ok"
            found[kind] += 1
    said = dict(line.split("\t") for line in run(porcupine, *wanted, seconds_max=600).splitlines())
    assert said == wanted
    assert found["as recorded"] == HISTORY_COUNT // 2
    assert min(found[kind] for kind in kinds) >= HISTORY_COUNT // 2 // len(kinds)
    print(dict(found))


def recorded(cluster: ClusterProcesses, admin: Admin, topic: str, *, has_kill: bool) -> list[Operation]:
    assert admin.create_topics([NewTopic(topic, PARTITION_COUNT, 3)]) == {topic: None}
    for index in range(PARTITION_COUNT):
        wait_for_in_sync(admin, topic, {1, 2, 3}, index)

    def kill() -> None:
        leader = admin.describe_topic(topic).partitions[0].leader
        cluster.nodes[leader].kill()
        cluster.nodes[leader].start()

    return record(cluster.bootstrap, topic, kill if has_kill else lambda: None)
