"""The error of credit."""


class CreditError(ValueError):
    """A credit option is out of range, or a closure could not be solved to its residual."""
