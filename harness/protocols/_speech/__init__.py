"""Speech on the wire: frames go out on a schedule, transcripts and sound come back, and both tell about time."""
