"""Hugging Face's Trainer with its masking collator, on a text from a file: token numbers, (rows, length), and no logs.

`config` is what the network's BertConfig is made of, and its last id is [MASK]. The collator hides each token with
probability `hidden / length`, so it hides as many on average as ours hides in each row, and always puts [MASK] there.
"""

from __future__ import annotations

import tempfile
import threading

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models


def build(config: dict, seed: int, inputs: str, hidden: int, batch: int, rate: float, optim: str, workers: int = 0):
    """A Trainer that only trains: one pass over the text, linear warm-up over a tenth of it, linear decay."""
    torch.manual_seed(seed)
    network = transformers.BertForMaskedLM(transformers.BertConfig(**config))
    text = np.load(inputs)
    steps = len(text) // batch
    arguments = transformers.TrainingArguments(
        max_steps=steps,
        warmup_steps=max(1, steps // 10),
        learning_rate=rate,
        optim=optim,
        max_grad_norm=0.0,
        use_cpu=True,
        seed=seed % 2**31,
        per_device_train_batch_size=batch,
        dataloader_num_workers=workers,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        # It writes and prints nothing.
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        output_dir=tempfile.gettempdir(),
    )
    rows = list(torch.from_numpy(text).long())
    masking = collator(mask=config["vocab_size"] - 1, share=hidden / text.shape[1])
    return transformers.Trainer(model=network, args=arguments, train_dataset=rows, data_collator=masking)


def collator(mask: int, share: float) -> transformers.DataCollatorForLanguageModeling:
    """Hides so large a share of the tokens, always behind [MASK]. Tokens are written as their numbers."""
    vocabulary = {str(token): token for token in range(mask)}
    vocabulary["[MASK]"] = mask
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="0"))
    return transformers.DataCollatorForLanguageModeling(
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]"),
        mlm_probability=share,
        mask_replace_prob=1.0,
        random_replace_prob=0.0,
    )


def steps(count: int, **settings):
    """A call is `count` steps of one long training, which waits between calls, in a thread of its own."""
    trainer = build(**settings)
    with torch.no_grad():  # these logits are the same for all that start from the same weights and text
        logits = trainer.model.eval()(torch.stack(trainer.train_dataset[:4])).logits.numpy()
    permits = threading.Semaphore(0)
    finished = threading.Semaphore(0)

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *args, **kwargs) -> None:
            permits.acquire()

        def on_step_end(self, *args, **kwargs) -> None:
            finished.release()

    trainer.add_callback(Turns())
    training = threading.Thread(target=trainer.train, daemon=True)

    def call() -> None:
        # It starts no earlier, because a Trainer that is built while another prepares takes its state away.
        if not training.is_alive():
            training.start()
        permits.release(count)
        for _ in range(count):
            finished.acquire()

    return call, lambda result: logits
