"""Speech on the wire: frames on a schedule going out, transcripts and sound coming back, and what both say about time."""
