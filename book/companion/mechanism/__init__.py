"""How a tuned prompt helps: by the prompt of Theorem 3.6, by making the label readable, and as a gate.

`rare_steps` has the theorem's prompt with a fitted head, and `heads_by_size` how large a head must be to read the label
off a prediction. `gate` has what is left of a prompt when one thing is changed, and `tables` what is stored of these.
"""
