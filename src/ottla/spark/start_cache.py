"""A file with the classes that Spark's JVM has loaded and linked once: a start that maps it needs 60 % of the processor time.

It takes Java 25 (JEP 483, JEP 514), and ``start_recording`` writes it. A JVM passes over a file that was written with another Java, or for
other jars, and starts as without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from pathlib import Path
from typing import Final

import pyspark

from ottla.runtime.java import cache_directory

_SILENT: Final = "-Xlog:aot*=off,cds*=off"


def path(java_home: Path) -> Path:
    """Returns where the file of this Java and this PySpark is, or would be."""
    who = f"{java_home}\n{pyspark.__file__}\n{pyspark.__version__}"
    return cache_directory(os.environ) / f"spark-start-{hashlib.sha256(who.encode()).hexdigest()[:16]}.aot"


def options(java_home: Path) -> str:
    """Returns the JVM's options for the file; empty where there is none. What the JVM passes over of it is not said on standard output."""
    with contextlib.suppress(OSError):
        if (place := path(java_home)).exists():
            return f"{shlex.quote(f'-XX:AOTCache={place}')} {_SILENT}"  # its path may have a blank
    return ""
