"""A pytest plug-in for ``make sanitize``: this process takes the engine that was built with sanitizers.

``PLIMSOLL_SANITIZED`` is the folder it was built into. Worker processes of a test keep the ordinary one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import plimsoll.harness.generator


def pytest_configure() -> None:
    path = next(Path(os.environ["PLIMSOLL_SANITIZED"], "plimsoll", "harness", "generator").glob("_engine*.so"))
    spec = importlib.util.spec_from_file_location("plimsoll.harness.generator._engine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["plimsoll.harness.generator._engine"] = module
    plimsoll.harness.generator._engine = module  # type: ignore[attr-defined]
