"""The oracle: a scripted SSE server in C that stamps every write, the standard for a load generator."""
