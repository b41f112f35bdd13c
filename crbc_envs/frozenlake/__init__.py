"""FrozenLake on maps of our own, with its exact values."""
