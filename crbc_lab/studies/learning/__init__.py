"""Agents without a language model that learn by every estimator, and their exact success: `crbc study learning`."""
