"""Rollouts: sampling with a policy in groups of environments, and evaluation."""
