"""Products: the generated catalogue and the published ones."""
