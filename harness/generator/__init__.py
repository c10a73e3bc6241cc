"""One worker: a shard of the plan goes out, and what came back becomes rows."""
