"""The picture of the README: Figure 3 from the stored trials.

python book/readme_pictures.py    writes book/pictures/head-against-prompt.png
"""

from __future__ import annotations

from pathlib import Path

from hmmbook.experiments.results import results
from hmmbook.experiments.store import STORE
from hmmbook.figures import figure_3, figures

figures.use_style()
trials = results("quick", STORE)
trials = trials.query("changes == '' and n_memory == 1 and n_states in [4, 8, 10, 15, 25, 30]")
picture = figure_3.panel(trials, "left")
folder = Path(__file__).resolve().parent / "pictures"
picture.savefig(folder / "head-against-prompt.png", dpi=150)
