"""`ConfigError`, which most commands raise."""


class ConfigError(ValueError):
    """A config, a run folder or a model folder is wrong or missing.

    The message names the file or key, what is wrong, and what to change. The `crbc` command prints it without a
    traceback and exits with status 2.
    """
