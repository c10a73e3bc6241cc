"""A pytest plug-in for ``make sanitize``: this process takes the engine that was built with sanitizers.

``PLIMSOLL_SANITIZED`` is the folder it was built into. Worker processes of a test keep the ordinary one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import harness


def pytest_configure() -> None:
    path = next(Path(os.environ["PLIMSOLL_SANITIZED"], "harness").glob("_engine*.so"))
    spec = importlib.util.spec_from_file_location("harness._engine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["harness._engine"] = module
    harness._engine = module  # type: ignore[attr-defined]
