"""Posteriors and masked-token probabilities of a model, exact, and exactly zero where something is impossible.

Read the modules in this order:

    evidence           what is known of each position: tokens, a prompt, or embeddings
    reference          τ, G and posteriors as the paper prints them, for short texts
    messages           the same, fast and at any length: what a user calls
    variables          whose distribution is sought: a state, a token, a memory cell
    forward_backward   the two passes of messages in torch, with gradients
    laws, compiled     the same passes as compiled loops, where no gradient is needed
"""
