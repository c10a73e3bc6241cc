"""The special functions that statistics need: scipy's own, without the 0.15 s that the rest of ``scipy.special`` costs.

That package loads half of numpy for functions which nobody here calls. So its compiled module is loaded by itself, and
a later ``import scipy.special`` finds the very same functions. Where scipy has no such module the package is loaded.
"""

import importlib
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

import scipy

_PACKAGE = "scipy.special"


def _compiled() -> ModuleType:
    spec = PathFinder.find_spec(_PACKAGE, scipy.__path__)
    if spec is None or _PACKAGE in sys.modules:
        return importlib.import_module(_PACKAGE)
    sys.modules[_PACKAGE] = module_from_spec(spec)  # the package's place, in which nothing has been run
    try:
        return importlib.import_module(f"{_PACKAGE}._ufuncs")
    finally:
        del sys.modules[_PACKAGE]


try:
    _found = _compiled()
except ImportError:
    _found = importlib.import_module(_PACKAGE)

betainc: Any = _found.betainc
betaincinv: Any = _found.betaincinv
gammaincinv: Any = _found.gammaincinv
gammaln: Any = _found.gammaln
kolmogorov: Any = _found.kolmogorov
stdtr: Any = _found.stdtr
stdtrit: Any = _found.stdtrit
