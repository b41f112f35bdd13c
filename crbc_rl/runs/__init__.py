"""Run folders: what a run writes and how it continues."""
