"""Models the server can run, one file each. Torch is imported here and in the torch runner, nowhere else."""
