"""What is raised for what the machine lacks: data on disk, a package, or a browser."""


class DataError(ValueError):
    """A data file is missing, damaged or of another format. The message says what is wrong, in which
    file, and the command that mends it; the `crbc` command prints it alone, without a traceback."""


class RequirementError(RuntimeError):
    """A package or program that an environment needs is missing. Raised when the environment is made, never in the
    middle of an episode. The message names what is missing and the command that installs it; the `crbc` command
    prints it alone, without a traceback."""


class BrowserError(RequirementError):
    """There is no browser, or it does not stay up."""
