"""Training: the objective, its optimizer steps, and checkpoints."""
