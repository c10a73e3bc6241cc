"""From records and verdicts to the parts of a report, a file for each section."""
