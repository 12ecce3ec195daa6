"""What a reader's own parameters and figures are told."""

import numpy as np
import pytest
from companion.figures import triangles
from companion.parameters import ParameterError, Sizes, check


def test_a_list_that_is_given_otherwise_is_shown_how():
    with pytest.raises(ParameterError, match=r"""parameter 'sizes': .*, not '4,8'; a list is given as "\[4, 8\]"$"""):
        check({"sizes": "4,8"}, sizes=Sizes)


def test_a_triangle_of_beliefs_names_its_corners_and_crosses():
    thirds = np.eye(3)
    (axes,) = triangles.simplex(thirds, [True, False, True], thirds, [1, -1, 0], (), ("p", "q", "r"), "states").axes
    assert {"p", "q", "r"} <= {text.get_text() for text in axes.texts}
    assert "states" in axes.get_legend_handles_labels()[1]
