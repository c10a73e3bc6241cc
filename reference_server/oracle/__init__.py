"""The oracle: a scripted SSE server in C that stamps every write, the standard that a load generator is held against."""
