"""Studies: the paper's claims tested where the truth can be computed exactly."""
