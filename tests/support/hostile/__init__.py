"""Files and servers of an attacker, and a machine that opens each with the package under limits.

`cases_*.py` hold the corpus, and `tests/test_hostile.py` runs it.
"""
