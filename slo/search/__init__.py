"""How much an endpoint bears: the search for its line, probes, curves over load, and the size of a fleet."""
