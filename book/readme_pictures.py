"""The picture of the README: Figure 3 from the stored trials.

python book/readme_pictures.py    writes book/pictures/head-against-prompt.png
"""

from __future__ import annotations

from pathlib import Path

from companion.figures import figure_3, figures

from hmmlib.experiments.results import results
from hmmlib.experiments.store import STORE

figures.use_style()
trials = results("quick", STORE).query("changes == '' and n_memory == 1 and n_states in [4, 8, 10, 15, 25, 30]")
folder = Path(__file__).resolve().parent / "pictures"
figure_3.panel(trials, "left").savefig(folder / "head-against-prompt.png", dpi=150)
