"""The HTTP family: connections on the stamped transport, and what its dialects share (heads, options, streams of JSON, forms)."""
