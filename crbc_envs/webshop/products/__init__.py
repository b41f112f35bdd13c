"""Products: the generated catalogue and the official ones."""
