"""The picture of the README: Figure 3 from the stored trials.

python book/readme_pictures.py    writes book/pictures/head-against-prompt.png
"""

from __future__ import annotations

import io
from pathlib import Path

from hmmbook.experiments.results import results
from hmmbook.experiments.store import STORE
from hmmbook.figures import figure_3, figures
from hmmbook.files import write_whole

figures.use_style()
trials = results("quick", STORE)
trials = trials.query("changes == '' and n_memory == 1 and n_states in [4, 8, 10, 15, 25, 30]")
picture = figure_3.head_against_prompt(trials)
png = io.BytesIO()
picture.savefig(png, format="png", dpi=150)
write_whole(Path(__file__).with_name("pictures") / "head-against-prompt.png", png.getvalue())
