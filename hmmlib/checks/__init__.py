"""For each numbered statement of the paper, a check that could fail and a negative control that must.

A check draws one random instance from its seed and returns a residual: how far the statement is from holding there,
against a witness that enumerates all latent paths. A control breaks one hypothesis and returns a gap: how far the
conclusion is from holding then. Where the printed form of a statement fails, a third function measures that form.
"""
