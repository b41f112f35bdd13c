"""The shop as a web site for people, and the environment that shops there through a browser."""
