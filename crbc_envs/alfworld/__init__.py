"""ALFWorld: text households (Shridhar et al., ICLR 2021), on an exact engine of our own or on TextWorld."""
