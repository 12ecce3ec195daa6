"""How does a tuned prompt help? By the prompt of Theorem 3.6, by making the label readable, and as a gate.

The pages *tuned-prompts* and *tuned-prompts-in-detail* show the answers. `rare_steps` has the theorem's prompt with a
fitted head. `heads_by_size` measures how large a head must be to read the label off a prediction. `gate` changes one
thing in the attention to the prompt at a time. `constants` and `controls` try to overturn what these suggest. `tables`
reads the stored results, `outcomes` compares them with predictions that were written down before, and `entries` groups
these.
"""
