"""One run: a job is checked, load is sent, the rows are sealed in a run directory and judged."""
