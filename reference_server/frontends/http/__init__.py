"""The HTTP front-end: OpenAI-compatible and KServe v2 routes, and those about the server itself."""
