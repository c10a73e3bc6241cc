"""Speech without weights: text spoken as two-tone symbols, and heard again by a bank of filters."""
