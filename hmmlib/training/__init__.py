"""A BERT-like network: pretraining, checkpoints, and the tuning of heads and prompts.

Read the modules in this order:

    bert               the network: its construction, and its logits at chosen positions
    pretraining        its pretraining on text of a model, which muon, gradients and checkpoints serve
    readers            any network as something that reads texts at a place
    fitting            the loop in which heads and prompts are tuned
    tuning             heads, attention heads, and prompts with a head
    from_transformers  networks of `transformers`, which foreign asks how they read
    adapters           prefix and LoRA, by `peft`
"""
