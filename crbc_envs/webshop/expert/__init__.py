"""The scripted shopper."""
