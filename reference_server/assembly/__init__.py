"""From settings to running models."""
