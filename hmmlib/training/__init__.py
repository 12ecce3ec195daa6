"""A BERT-like network: pretraining, checkpoints, and the tuning of heads and prompts."""
