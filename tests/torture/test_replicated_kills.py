"""As tests/cluster/test_replicated_kills.py, many times over, with Kafka's Java client among the producers: a JDK and Maven are needed."""

from pathlib import Path

from tests.cluster.replicated_killing import judged, run

KILL_COUNT = 200


def test_two_hundred_kills_lose_and_double_nothing_and_the_replicas_are_equal(tmp_path: Path, java_client: list[str]) -> None:
    outcome = run(tmp_path, kill_count=KILL_COUNT, java=java_client)
    print(outcome)
    assert outcome.sent["java"] > KILL_COUNT
    verdict = judged(tmp_path)
    assert (verdict.anomalies, verdict.is_unknown) == ([], False)
