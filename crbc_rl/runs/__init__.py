"""Run folders, metrics, progress and callbacks."""
