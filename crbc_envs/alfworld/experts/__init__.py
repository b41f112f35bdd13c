"""Scripted experts."""
