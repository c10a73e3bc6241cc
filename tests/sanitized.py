"""A pytest plug-in for ``make sanitize``: this process takes the compiled parts that were built with sanitizers.

``PLIMSOLL_SANITIZED`` is the folder they were built into. Worker processes of a test keep the ordinary ones.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib import import_module
from pathlib import Path


def pytest_configure() -> None:
    for room, part in (("generator", "_engine"), ("process", "_scratch")):
        path = next(Path(os.environ["PLIMSOLL_SANITIZED"], "plimsoll", "harness", room).glob(f"{part}*.so"))
        name = f"plimsoll.harness.{room}"
        spec = importlib.util.spec_from_file_location(f"{name}.{part}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[f"{name}.{part}"] = module
        setattr(import_module(name), part, module)
