"""The pure core of a run."""
