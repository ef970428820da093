"""Puts the compiled record kernel into the wheel, and gives the wheel the tag of this Python and machine.

Hatchling runs it only where ``HATCH_BUILD_HOOK_ENABLE_CUSTOM=true`` is set; without it the wheel is pure.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledKernel(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-wheel-")
        subprocess.run([sys.executable, Path(self.root, "scripts", "compile_kernel.py"), self._folder.name], check=True)
        for module in Path(self._folder.name).iterdir():
            build_data["force_include"][str(module)] = f"ottla/records/{module.name}"
        build_data["infer_tag"], build_data["pure_python"] = True, False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()
