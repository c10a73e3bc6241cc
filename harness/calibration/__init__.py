"""What this machine can do honestly: measured once, and held against each run before it is made."""
