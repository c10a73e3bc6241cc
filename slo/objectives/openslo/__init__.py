"""OpenSLO v1: documents that say what a service promises, read strictly, bound to what a run measures, and judged.

``load`` reads a file and ``parse`` its text, ``Slo`` is one promise of it, ``recognise`` tells such files from those of
the short grammar. Metrics of other systems are understood and never fetched.
"""

from plimsoll.slo.objectives.openslo.promise import Slo
from plimsoll.slo.objectives.openslo.reading import Loaded, load, parse, recognise, starter

__all__ = ["Loaded", "Slo", "load", "parse", "recognise", "starter"]
