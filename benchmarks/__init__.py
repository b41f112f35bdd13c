"""Benchmarks, run on your machine: `python -m benchmarks.<name>`."""
