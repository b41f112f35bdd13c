"""The exact engine, the original one, and the comparison of the two."""
