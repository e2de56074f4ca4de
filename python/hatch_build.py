"""Puts the program `filesecbox` into a wheel, when one is named; without, the wheel is the client alone, for every platform.

``FILESECBOX_WHEEL_PROGRAM`` is the program's file, and ``FILESECBOX_WHEEL_PLATFORM`` the platform that it runs on, as in the names of
wheels. `scripts/release` sets both.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    """The hook, by the name that hatchling looks for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the program as a script, which installers put on the path and make executable."""
        program = os.environ.get("FILESECBOX_WHEEL_PROGRAM")
        if self.target_name != "wheel" or version == "editable" or not program:
            return
        if not os.path.isfile(program):
            raise FileNotFoundError(f"FILESECBOX_WHEEL_PROGRAM names `{program}`, which is no file")
        platform = os.environ.get("FILESECBOX_WHEEL_PLATFORM")
        if not platform:
            raise ValueError("FILESECBOX_WHEEL_PLATFORM is not set: the platform that FILESECBOX_WHEEL_PROGRAM runs on")
        build_data["shared_scripts"][program] = "filesecbox"
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
