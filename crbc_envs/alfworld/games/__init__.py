"""Games: generated households and ALFWorld's published games."""
