"""What a step on a device is made of: its cache, its inputs, its attention, its graphs. Models don't know of it."""
