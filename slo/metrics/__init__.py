"""What can be measured of a row, and what several indicators share."""
