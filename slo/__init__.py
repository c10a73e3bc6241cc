"""WHAT was promised, and was it kept: records, indicators, objectives, validity, verdicts. Pure and light."""
