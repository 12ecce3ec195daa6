"""Where in the network is the belief about the state, and which part of it does the label follow?

The page *tuned-prompts-in-detail* shows the answers. `probes` reads the belief and the label off hidden states.
`measured` does so in each layer, with and without a prompt, and hides the prompt from single layers. `swaps` puts parts
of one text's hidden state into another's.
"""

from hmmbook.studies.hidden_states.probes import Probe, explained, linear_probe, logistic_probe

__all__ = ["Probe", "explained", "linear_probe", "logistic_probe"]
