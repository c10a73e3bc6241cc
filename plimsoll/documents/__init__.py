"""What a person or another program wrote and hands to us: read within bounds, with the line of everything in it."""
