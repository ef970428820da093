"""Executors of a standalone cluster that are killed in each stage, and tasks that Spark runs twice: the output is that of a batch."""

from pathlib import Path

from tests.spark.submitting import Submitting, submitting

STAGES = ("map", "reduce")
SPECULATION = (
    "spark.speculation=true",
    "spark.speculation.interval=100ms",
    "spark.speculation.minTaskRuntime=100ms",
    "spark.speculation.multiplier=1.1",
    "spark.speculation.quantile=0.5",
)


def test_the_executors_of_both_workers_are_killed_in_each_stage_twice_in_a_row(tmp_path: Path) -> None:
    def kill(cluster: Submitting) -> None:
        for stage in STAGES:
            for number in range(2):
                cluster.hold(stage, number)
                cluster.kill_when_held(stage, number)

    with submitting(tmp_path) as cluster:
        for _ in range(2):
            said = cluster.run(meanwhile=lambda: kill(cluster))
            assert "failed" not in said, "Spark runs the tasks again, and no query"
            cluster.check()
            cluster.release()


def test_a_task_that_runs_twice_at_once_counts_once(tmp_path: Path) -> None:
    with submitting(tmp_path, worker_cores=2) as cluster:
        (cluster.held / "slow").touch()
        for _ in range(2):
            cluster.run(*SPECULATION)
            cluster.check()
        for stage in STAGES:
            assert list(cluster.held.glob(f"{stage}.*.attempt.1")), f"Spark has started another task of {stage}, while the first one ran"
