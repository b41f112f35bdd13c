"""The shop as a web site for people, and the environment that uses it through a browser."""
