"""Types of options that click does not have: a directory whose name is not empty, a number that is finite."""

from __future__ import annotations

import math
import os
from typing import Any

import click


class Directory(click.Path):
    """A directory, which may have yet to be made. An empty text is refused: a script's empty variable would be the working directory."""

    def __init__(self, **more: Any) -> None:
        super().__init__(file_okay=False, **more)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the path; click's error for what is no directory."""
        if not os.fspath(value):
            self.fail("the name of the directory is empty", param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number within its range. No limit holds back nan, which is neither above nor below one, and inf fits no request."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number; click's error for what is none."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return found
