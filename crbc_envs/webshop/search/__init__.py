"""The search engine over products."""
