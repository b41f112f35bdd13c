"""A policy behind an endpoint with OpenAI's interface. See docs/serve_model.md."""
