"""Models the server can run, one file each. Torch is imported here, in device/ and in assembly.py, nowhere else."""
