"""Comparisons of trained agents: which trainings a study needs, what is kept of each, and the tables made of that."""
