"""Which Python Spark's processes run, as importing the package decides; each time in a process of its own."""

import subprocess
import sys

import pytest

SHOWN = "import ottla.spark, os; print(os.environ.get('PYSPARK_PYTHON'))"
STARTED = """
import types, sys
context = types.ModuleType("pyspark.core.context")
context.SparkContext = types.SimpleNamespace(_gateway=object())
sys.modules["pyspark.core.context"] = context
"""


def output_of(script: str, **environment: str) -> str:
    """What it says on both streams, in an environment that is not activated."""
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": "/usr/bin:/bin"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return found.stdout.strip()


def test_a_session_that_is_made_after_the_import_runs_this_python():
    assert output_of(SHOWN) == sys.executable


@pytest.mark.parametrize(
    ("environment", "shown"), [({"PYSPARK_PYTHON": "/other/python"}, "/other/python"), ({"PYSPARK_GATEWAY_PORT": "1"}, "None")]
)
def test_a_choice_that_was_made_stays(environment: dict[str, str], shown: str):
    assert output_of(SHOWN, **environment) == shown


def test_a_session_that_runs_another_python_already_is_warned_of():
    told = output_of(STARTED + SHOWN)
    assert "UserWarning: Spark runs python3" in told
    assert f"set PYSPARK_PYTHON={sys.executable}" in told
    assert told.endswith("None")
