"""The commands behind `crbc`."""
