"""One thread: the tests work on small arrays, where more threads only wait for each other, and on busy machines for long."""

import torch

torch.set_num_threads(1)
