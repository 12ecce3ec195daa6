"""The two generative models of the paper, draws from them, and families of random ones."""
