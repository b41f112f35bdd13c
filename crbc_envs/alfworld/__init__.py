"""ALFWorld: text households (Shridhar et al., ICLR 2021), with our own exact engine or with TextWorld."""
