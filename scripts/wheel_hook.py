"""Puts the compiled record kernel into the wheel, and gives the wheel the tag of CPython's limited API and of this machine.

Where it cannot be compiled, or ``OTTLA_PURE=1`` is set, the wheel is pure and fits every machine: ottla is slower then, and says at its
start which kernel it runs. ``OTTLA_KERNEL_FILE`` and ``OTTLA_WHEEL_PLATFORM`` name a module that was compiled for another platform.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "compiled_kernel.abi3.so"


class CompiledKernel(BuildHookInterface):  # type: ignore[type-arg]
    _directory: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or os.environ.get("OTTLA_PURE") == "1":  # the first is compiled in place by scripts/setup
            return
        module = os.environ.get("OTTLA_KERNEL_FILE") or self._compiled()
        if module is None:
            return
        platform = os.environ.get("OTTLA_WHEEL_PLATFORM") or sysconfig.get_platform()
        build_data["force_include"][module] = f"ottla/records/{MODULE}"
        build_data["tag"] = f"cp311-abi3-{platform.replace('-', '_').replace('.', '_')}"
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._directory is not None:
            self._directory.cleanup()

    def _compiled(self) -> str | None:
        """The module for this machine; None, and a word, where it cannot be compiled."""
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-wheel-")
        script = Path(self.root, "scripts", "compile_kernel.py")
        done = subprocess.run([sys.executable, script, self._directory.name], check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return str(Path(self._directory.name, MODULE))
        self.app.display_warning(f"{done.stderr.strip()} This wheel is pure: ottla runs the plain kernel.")
        return None
