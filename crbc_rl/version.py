"""The version of the package, for the package index, run folders and `crbc --version`."""

__version__ = "0.1.0"
