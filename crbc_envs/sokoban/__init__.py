"""Sokoban: our own rules, rooms, frames and exact solver."""
