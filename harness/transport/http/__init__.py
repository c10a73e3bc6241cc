"""HTTP/1.1: connections on the stamped stream, and the seam to the dialects."""
