"""Files and servers of an attacker, and a machine that opens each with the package under limits.

`cases_*.py` hold the corpus. `tests/test_hostile.py` runs it, and so does

    PYTHONPATH=tests/support python -m hostile [--tree CLONE] [NAME ...]

which prints a table; with `--tree` of the package in another clone, such as the commit before.
"""
