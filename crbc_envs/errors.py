"""What is raised for what the machine lacks: data on disk, or a browser."""


class DataError(ValueError):
    """A data file is missing, damaged or of another format. The message says what is wrong, in which
    file, and the command that mends it; the `crbc` command prints it alone, without a traceback."""


class BrowserError(RuntimeError):
    """There is no browser to be had, or it does not stay up. The message names what is missing and the command
    that brings it; the `crbc` command prints it alone, without a traceback."""
