"""As tests/cluster/test_replicated_kills.py, many times over, with Kafka's Java client among the producers: a JDK and Maven are needed."""

from pathlib import Path

from tests.cli.cluster_command import ottla
from tests.cluster.replicated_killing import HISTORY, run

KILL_COUNT = 200


def test_two_hundred_kills_lose_and_double_nothing_and_the_replicas_are_equal(tmp_path: Path, java_client: list[str]) -> None:
    outcome = run(tmp_path, kill_count=KILL_COUNT, java=java_client)
    print(outcome)
    assert outcome.sent["java"] > KILL_COUNT
    judged = ottla("check-history", str(tmp_path / HISTORY))
    print(judged.stdout)
    assert judged.returncode == 0, judged.stdout
