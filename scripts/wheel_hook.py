"""Puts the compiled record kernel into the wheel, and gives the wheel the tag of this Python and machine.

Where there is no C compiler, or ``OTTLA_PURE=1`` is set, the wheel is pure and fits every machine: ottla is slower then, and says
at its start which kernel it runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledKernel(BuildHookInterface):  # type: ignore[type-arg]
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # scripts/setup compiles it in place
            return
        script = [sys.executable, Path(self.root, "scripts", "compile_kernel.py")]
        if os.environ.get("OTTLA_PURE") == "1" or subprocess.run([*script, "--check"], check=False).returncode:
            return
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-wheel-")
        subprocess.run([*script, self._folder.name], check=True)
        for module in Path(self._folder.name).iterdir():
            build_data["force_include"][str(module)] = f"ottla/records/{module.name}"
        build_data["infer_tag"], build_data["pure_python"] = True, False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()
