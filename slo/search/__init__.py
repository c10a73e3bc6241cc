"""How much an endpoint bears: where its line is and how a search decides, when a run is past hope, curves, sizing, warmth."""
