"""The example of a Declarative Pipeline, as ``spark-pipelines`` runs it: in a JVM of its own, over Spark Connect."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from tests.spark.conftest import Topics
from tests.spark.test_streams import written

from ottla.runtime.java import find_java_home

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"
PROGRAM = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_declarative_pipeline_reads_a_topic_and_writes_one_exactly_once(topics: Topics, tmp_path: Path):
    source, target = topics.create(name="orders"), topics.create(name="large-orders")
    topics.produce(source, [(None, b'{"customer":"ada","amount":5}'), (None, b'{"customer":"ada","amount":5000}')])
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///var/lib/large-orders", (tmp_path / "storage").as_uri()))
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    given |= {"JAVA_HOME": str(find_java_home()), "SPARK_HOME": str(PROGRAM.parent.parent), "PYSPARK_PYTHON": sys.executable}
    given |= {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1"}  # for which Connect takes any free port
    conf = CONF | {"spark.orders.brokers": topics.bootstrap, "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    command = [str(PROGRAM), "run", *(part for key, value in conf.items() for part in ("--conf", f"{key}={value}"))]
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert [(record.key, record.value) for record in written(topics, target)] == [(b"ada", b'{"customer":"ada","amount":5000.0}')]
