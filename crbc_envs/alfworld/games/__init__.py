"""Games: generated households and the published ones."""
