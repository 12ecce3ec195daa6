"""Statements about supports, decided for every pattern of zeros of small models.

Which probabilities are zero depends only on the supports of A, P[M], u and μ, and on those of the rows of W for the
tokens of the input. So a statement about supports is decided for every model of a size by going through all supports:
every A, every P[M], every sequence of rows of W, whatever the vocabulary. In these models 1 stands for every entry
that is positive.

`models` makes the patterns, `supports` states what is decided, and `decision` decides it.
"""

from hmmbook.evidence.zero_patterns.decision import PATTERNS as PATTERNS
from hmmbook.evidence.zero_patterns.decision import decide as decide
from hmmbook.evidence.zero_patterns.models import ergodic as ergodic
