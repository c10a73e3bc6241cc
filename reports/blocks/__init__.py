"""What every document is made of, and what adds a section to a run's."""
