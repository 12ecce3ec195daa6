"""Compile the library's loops for this machine, for each kind of argument with which a trial calls them.

Numba compiles a loop when it is first called, which takes seconds, and then keeps it.
"""

import torch

import hmmlib

# In float32, chains of few states have loops of their own.
for model in (hmmlib.random_hmm(9, 2), hmmlib.random_hmm(4, 2), hmmlib.random_memory_hmm(2, 9, 2)):
    for dtype in (torch.float64, torch.float32):
        chain = model.to(dtype=dtype)
        tokens = chain.sample(2, 3, 0).tokens
        hmmlib.masked_token_probs(chain, tokens)
        chain.sample(2, 3, 0, dtype=torch.uint8)
