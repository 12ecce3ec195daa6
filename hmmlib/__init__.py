"""hmmlib: the library behind the executable companion to Wei, Xie and Ma (2021)."""

import os

# Threads of torch that wait for each other spin. With another busy process beside them on few cores, a step then takes
# 20 to 40 times as long; with a short spin it takes its fair share. Read when torch is first imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
