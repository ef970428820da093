"""Which Python Spark's processes run, as importing the package decides; each time in a process of its own, not activated."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from tests.spark.conftest import Topics

import ottla
from ottla.runtime.java import use_java

SOURCE = Path(ottla.__file__).parents[1]
NOT_FOUND = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: ottla."
SHOWN = "import ottla.spark, os; print(os.environ.get('PYSPARK_PYTHON'))"
JVM_STARTED = "from pyspark import SparkContext; SparkContext._ensure_initialized();"
JVM_OF_BEFORE = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate().stop()
from ottla.spark import session
print("ANSWER", session("second", master="local[1]").range(3).mapInArrow(lambda batches: batches, "id long").count())
"""
PLAIN_SESSION = """
import json, sys, traceback
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for place in ("spark.driver.host", "spark.driver.bindAddress"):
    builder = builder.config(place, "127.0.0.1")
spark = builder.getOrCreate()
bootstrap, source, target = sys.argv[1:]
servers = {"kafka.bootstrap.servers": bootstrap}

def load(topic, spark=spark):
    return spark.read.format("ottla").options(subscribe=topic, **servers).load().selectExpr("value")

def refusal(action, *arguments):
    try:
        action(*arguments)
    except Exception:
        return traceback.format_exc()

found = {"before": refusal(load, source), "imported": [name for name in sys.modules if "ottla" in name]}
from ottla.spark import sink
rows = spark.range(0, 5, 1, 1).selectExpr("string(id) as value")
rows.write.format("ottla").options(topic=source, **servers).mode("append").save()
sink({"topic": target, "delivery": "at_least_once", **servers})(load(source), 0)  # the function of a foreachBatch
found["values"] = sorted(row.value.decode() for row in load(target).collect())
found["another session"] = refusal(load, source, spark.newSession())
print("found", json.dumps(found))
spark.stop()
"""


def output_of(script: str, *arguments: str, path: str = "/usr/bin:/bin", **environment: str) -> str:
    """What it says on both streams, in an environment that is not activated."""
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{script}", *arguments],
        env={"PATH": path, "JAVA_HOME": str(use_java())} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-4000:]
    return found.stdout.strip()


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH whose python3 has no ottla."""
    directory = tmp_path_factory.mktemp("other")
    venv.create(directory, symlinks=True)
    return f"{directory / 'bin'}:/usr/bin:/bin"


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_on_the_jvm_of_an_earlier_one_runs_this_python(other_python: str):
    """That JVM does not know which Python the launcher starts, and python3 would be another one."""
    answer = output_of(JVM_OF_BEFORE, path=other_python)
    assert answer.endswith("ANSWER 3"), answer


def test_a_session_that_is_made_after_the_import_runs_this_python():
    assert output_of(SHOWN) == sys.executable


@pytest.mark.parametrize(
    ("environment", "shown"), [({"PYSPARK_PYTHON": "/other/python"}, "/other/python"), ({"PYSPARK_GATEWAY_PORT": "1"}, "None")]
)
def test_a_choice_that_was_made_stays(environment: dict[str, str], shown: str):
    assert output_of(SHOWN, **environment) == shown


@pytest.mark.spark
def test_a_jvm_that_runs_another_python_already_is_warned_of(other_python: str):
    told = output_of(JVM_STARTED + SHOWN, path=other_python)
    assert "<string>:2: UserWarning: Spark runs python3" in told
    assert f"set PYSPARK_PYTHON={sys.executable}" in told
    assert told.endswith("None")


@pytest.mark.spark
def test_a_plain_session_finds_the_source_once_ottla_is_imported_and_says_before_what_the_documents_quote(
    topics: Topics, other_python: str
):
    source, target = topics.create(), topics.create()
    told = output_of(PLAIN_SESSION, topics.bootstrap, source, target, path=other_python)
    found = json.loads(told.rpartition("found ")[2].splitlines()[0])
    assert found["imported"] == []
    assert NOT_FOUND in found["before"]
    assert "PYSPARK_PYTHON" not in found["before"], "the error alone does not say it: the documents have to (tests/test_repository.py)"
    assert found["values"] == ["0", "1", "2", "3", "4"]
    assert NOT_FOUND in found["another session"]
    assert f"set PYSPARK_PYTHON={sys.executable}" in found["another session"]


def test_functions_of_a_session_on_this_machine_import_the_installed_pyspark(spark):
    """The copy that Spark puts before it is a zip of sources, which each process would compile."""
    is_zipped = F.udf(lambda _: ".zip" in str(__import__("pyspark").__file__), "boolean")
    assert [row[0] for row in spark.range(1).select(is_zipped("id")).collect()] == [False]
