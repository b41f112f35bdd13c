"""Vectorised environments: `GroupVectorEnv`, its members, its recorder and its workers."""
