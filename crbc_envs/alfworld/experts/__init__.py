"""Scripted experts: one sees the whole state, the other only what an agent sees."""
