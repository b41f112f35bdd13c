"""Groups of environments: the vector environment, its members, and the workers that play them."""
