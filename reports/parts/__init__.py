"""The parts of a report: frozen values that a renderer may show."""
