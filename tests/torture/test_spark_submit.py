"""``ottla pipeline submit``: pipelines on a standalone cluster of two workers, whose executors get their packages from the driver."""

from pathlib import Path

import pytest
from tests.spark.submitting import submitting


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_pipeline_runs_on_executors_that_had_no_ottla_and_outlives_one_of_them(tmp_path: Path):
    with submitting(tmp_path) as cluster:
        cluster.hold("map", 0)
        said = cluster.run(meanwhile=lambda: cluster.kill_when_held("map", 0))
        [origin] = [mark.read_text() for mark in cluster.held.iterdir()]
        assert origin.startswith(str(tmp_path / "worker-")), "an executor has the packages of the archive"
        assert "MB of packages for executors" in said
        assert "cluster_pipeline-copy  has caught up" in said
        assert "failed" not in said
        cluster.check()
