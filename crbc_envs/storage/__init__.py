"""Files on disk: recorded rollouts and published data sets."""
