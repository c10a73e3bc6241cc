"""The one error that is the user's to mend: a scenario that cannot be run, and everything wrong with it."""

from __future__ import annotations

from collections.abc import Sequence


class ScenarioError(ValueError):
    """Every problem found, each as ``where: what. next step``, in the order of the scenario's own keys."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = list(errors)
        super().__init__("\n".join(self.errors))
