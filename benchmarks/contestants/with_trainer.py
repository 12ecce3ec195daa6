"""Hugging Face's Trainer with its masking collator, on a text from a file: token numbers, (rows, length), and no logs.

`config` is what the network's BertConfig is made of; its last id is [MASK]. The collator hides each token with
probability `hidden / length`, so as many on average as ours hides in each row, and always shows [MASK] in their place.
"""

from __future__ import annotations

import tempfile
import threading

import numpy as np
import torch
import transformers
from common import whole_training
from tokenizers import Tokenizer, models


def build(config: dict, seed: int, inputs: str, hidden: int, batch: int, rate: float, optim: str, workers: int = 0):
    """A Trainer that only trains: one pass over the text, linear warm-up over a tenth of it, linear decay."""
    torch.manual_seed(seed)
    network, text = transformers.BertForMaskedLM(transformers.BertConfig(**config)), np.load(inputs)
    steps = len(text) // batch
    pace = dict(max_steps=steps, warmup_steps=max(1, steps // 10), learning_rate=rate)
    loading = dict(per_device_train_batch_size=batch, dataloader_num_workers=workers, dataloader_pin_memory=False)
    quiet = dict(report_to="none", save_strategy="no", logging_strategy="no", logging_nan_inf_filter=False)
    quiet |= dict(disable_tqdm=True, output_dir=tempfile.gettempdir())  # where nothing is written
    other = dict(use_cpu=True, optim=optim, max_grad_norm=0.0, remove_unused_columns=False, seed=seed % 2**31)
    arguments = transformers.TrainingArguments(**pace, **loading, **quiet, **other)
    mask = config["vocab_size"] - 1
    words = {str(token): token for token in range(mask)} | {"[MASK]": mask}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="0"))
    masking = transformers.DataCollatorForLanguageModeling(
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]"),
        mlm_probability=hidden / text.shape[1],
        mask_replace_prob=1.0,
        random_replace_prob=0.0,
    )
    rows = [*torch.from_numpy(text).long()]
    return transformers.Trainer(model=network, args=arguments, train_dataset=rows, data_collator=masking)


def steps(count: int, **settings):
    """A call is `count` steps of one long training, which waits between calls, in a thread of its own."""
    long = build(**settings)
    with torch.no_grad():  # the same for all that start from the same weights and text
        first = long.model.eval()(torch.stack(long.train_dataset[:4])).logits.numpy()
    go, done = threading.Semaphore(0), threading.Semaphore(0)

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *args, **kwargs) -> None:
            go.acquire()

        def on_step_end(self, *args, **kwargs) -> None:
            done.release()

    long.add_callback(Turns())
    training = threading.Thread(target=long.train, daemon=True)

    def call() -> None:
        if not training.is_alive():  # not before: a Trainer that is built while another prepares takes its state away
            training.start()
        go.release(count)
        for _ in range(count):
            done.acquire()

    return call, lambda result: first


def trained(**settings):
    """A call is a whole training."""

    def built():
        trainer = build(**settings)
        return trainer.model, trainer.train

    return whole_training(built)
