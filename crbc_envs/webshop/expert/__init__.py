"""The scripted expert."""
