"""The environment of the processes of ``format("ottla")``, which all streaming queries of a session share.

Spark keeps it with the source, in a map that is not safe for threads, and each query that starts adds some variables to it. Of two queries
that start at the same time one may break the map for good: "Illegal size 5 of collection, expected 6", and every job that reads a topic
fails from then on. Nothing breaks where a variable that is there already gets another value. So they are all there before the first query.

All sessions of a JVM share the map. A Spark Connect session does not reach it: the source's own code runs in Python processes beside the
server's JVM, which have a socket to it and no gateway. There the first query has to start alone (docs/spark.md).
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import MutableMapping
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql.streaming.readwriter import DataStreamReader

from ottla.spark.choices import acting

VARIABLES: Final = {
    "SPARK_LOCAL_DIRS": tempfile.gettempdir(),
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""What a query adds when it starts (Spark's PythonStreamingSourceRunner). It puts values of its own in place of these."""
_COMPLETING: Final = threading.Lock()


def complete_for_readers() -> None:
    """Makes the choice of ``format("ottla")`` for a stream complete the environment of the session's source."""
    owner: Any = DataStreamReader
    owner.format = acting(owner.format, complete)


def complete(reader: Any) -> None:
    """Adds the variables that are not there. A session that does not find the source says so when the reader loads."""
    with _COMPLETING:
        try:
            environment = environment_of(reader._spark)
        except AnalysisException:
            return
        for name, value in VARIABLES.items():
            if name not in environment:
                environment[name] = value


def environment_of(session: Any) -> MutableMapping[str, str]:
    """Returns the map of a classic session's source itself, in the JVM. AnalysisException when the session does not find the source."""
    source = session._jsparkSession.sessionState().dataSourceManager().lookupDataSource("ottla")
    environment: MutableMapping[str, str] = source.dataSourceCls().envVars()
    return environment
