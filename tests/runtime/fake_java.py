"""A program that stands in for ``bin/java``."""

from pathlib import Path


def fake_java(home: Path, *, version: str, modules: str = "jdk.incubator.vector") -> Path:
    """A bin/java that answers as a runtime of this version does, and like one refuses modules that it has not."""
    script = f"""#!/bin/sh
for argument do
    case $argument in
        --add-modules={modules}) ;;
        --add-modules=*) echo "java.lang.module.FindException: Module not found" >&2; exit 1 ;;
        -print) for each do printf '%s\\n' "$each"; done; exit 0 ;;
    esac
done
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
    return program
