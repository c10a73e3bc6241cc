"""How a scenario is written: files, durations, names, mistakes."""
