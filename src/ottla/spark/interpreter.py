"""Which Python Spark's processes run.

Spark looks for data sources, and runs its workers, with ``python3`` unless PYSPARK_PYTHON says otherwise, and in an environment that
is not activated that one has no ottla. The JVM reads the variable when it starts. After that, a session on this machine can still
have the source registered with a Python of its own.

Processes on the driver's machine start by ``python.sh``, which leaves out a copy of PySpark that is slow to import.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

VARIABLES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
LAUNCHER: Final = str(Path(__file__).with_name("python.sh"))
LAUNCHED: Final = "OTTLA_SPARK_PYTHON"
"""The variable of the Python that the launcher starts."""


def share_python() -> None:
    """Makes Spark run this Python unless another one was chosen; warns where it no longer can."""
    if "PYSPARK_PYTHON" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ:
        return  # it was chosen, or spark-submit has chosen
    if _gateway() is None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif os.path.dirname(shutil.which("python3") or "") != os.path.dirname(sys.executable):
        session = _local_session()
        if session is not None:
            _register(session)
            return
        text = 'Spark runs python3, which may not be the Python of ottla, and then does not find format("ottla")'
        warnings.warn(f"{text}; {way_out()}", stacklevel=3)


def pythons(chosen: Mapping[str, str], *, is_local: bool) -> dict[str, str]:
    """Returns the variables by which Spark runs this Python, unless another one was chosen. ``is_local``: all on the driver's machine."""
    own = sys.executable
    wanted = LAUNCHER if is_local and _has_own_copy(chosen) and os.access(LAUNCHER, os.X_OK) and _launcher_knows(chosen) else own
    found = {name: wanted if chosen.get(name) in (None, own, LAUNCHER) else chosen[name] for name in VARIABLES}
    return found | {LAUNCHED: own} if LAUNCHER in found.values() else found


def _launcher_knows(chosen: Mapping[str, str]) -> bool:
    """Returns whether the launcher has the name of the Python to start: its environment is that with which the JVM was started."""
    gateway = _gateway()
    if gateway is None:
        return LAUNCHED in chosen or "PYSPARK_GATEWAY_PORT" not in chosen  # spark-submit's JVM is there already
    return gateway.jvm.java.lang.System.getenv(LAUNCHED) is not None


def _gateway() -> Any:
    """Returns the way to the JVM that this process has started; None where there is none yet."""
    context = sys.modules.get("pyspark.core.context")
    return None if context is None else context.SparkContext._gateway


def _has_own_copy(chosen: Mapping[str, str]) -> bool:
    """Returns whether the Spark that is started is that of the installed PySpark."""
    spec, home = find_spec("pyspark"), chosen.get("SPARK_HOME")
    if spec is None or spec.origin is None:
        return False
    return home is None or Path(home).resolve() == Path(spec.origin).parent.resolve()


def way_out() -> str:
    """Returns what a user can do, in words."""
    return f"import ottla.spark before the SparkSession is made, or set PYSPARK_PYTHON={sys.executable}"


def _local_session() -> Any:
    """Returns the active session, when its workers run on this machine and its driver is this process; else None."""
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    session = None if is_remote() else SparkSession.getActiveSession()
    return session if session is not None and (session.sparkContext.master or "").startswith("local") else None


def _register(session: Any) -> None:
    """Registers ``format("ottla")`` in the session, whose new functions run in this Python from here on."""
    from ottla.spark.source import OttlaDataSource

    session.sparkContext.pythonExec = sys.executable
    session.dataSource.register(OttlaDataSource)
