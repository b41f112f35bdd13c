"""Errors for what is missing on the machine: data files, a package or a browser."""


class DataError(ValueError):
    """A data file is missing, damaged or of another format.

    The message says what is wrong, in which file, and which command fixes it. The `crbc` command prints the
    message without a traceback.
    """


class RequirementError(RuntimeError):
    """A package or program that an environment needs is missing.

    It is raised when the environment is made, never during an episode. The message names what is missing and
    the command that installs it. The `crbc` command prints the message without a traceback.
    """


class BrowserError(RequirementError):
    """No browser was found, or the browser keeps exiting."""
