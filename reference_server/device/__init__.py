"""What a step on a device is made of: its cache, its inputs, its attention, its graphs. Torch lives here too; models don't know of it."""
