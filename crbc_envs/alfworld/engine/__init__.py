"""The exact engine, the original engine (TextWorld), and the comparison of the two."""
