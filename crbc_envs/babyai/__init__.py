"""BabyAI: MiniGrid's text missions, its partial view in words, and its expert bot."""
