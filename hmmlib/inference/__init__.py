"""The conditional probabilities of a model, computed twice: as the paper prints them, and fast."""
