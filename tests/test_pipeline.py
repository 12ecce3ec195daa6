"""From notebook to executed copy: run once, run again only when something it depends on has changed, fail loudly."""

import sys
from pathlib import Path
from types import SimpleNamespace

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "book"), str(ROOT / "book" / "_ext")]
import companion  # noqa: E402

import notebooks as pipeline  # noqa: E402


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one notebook that prints its seed, or fails if told to."""
    for folder in ("notebooks", "hmmlib", "results", "build"):
        (tmp_path / folder).mkdir()
    cells = [
        nbformat.v4.new_markdown_cell("A claim: Theorem 3.3", id="t"),
        nbformat.v4.new_code_cell("# Parameters: here\nseed = 0", metadata={"tags": ["parameters"]}, id="a"),
        nbformat.v4.new_code_cell("print('seed', seed)\nassert seed < 5, 'seed too large'", id="b"),
    ]
    path = tmp_path / "notebooks" / "a.ipynb"
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbformat.write(notebook, path)
    cells[0].source = "A claim: {prf:ref}`paper-thm-3-3`"
    jupytext.write(notebook, path.with_suffix(".md"), fmt="md:myst")
    (tmp_path / "hmmlib" / "moving").mkdir()
    (tmp_path / "requirements.lock").write_text("a==1\n")
    (tmp_path / "hmmlib" / "x.py").write_text("x = 1\n")
    (tmp_path / "seed.yaml").write_text("seed: 3\n")
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    monkeypatch.setattr(pipeline, "EXECUTED", tmp_path / "build" / "executed" / "notebooks")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "build" / "ipython"))
    return SimpleNamespace(root=tmp_path, path=path, copy=pipeline.EXECUTED / "a.ipynb", values=tmp_path / "seed.yaml")


def test_a_notebook_is_run_once_and_its_injected_cell_hidden(project, capsys):
    pipeline.execute(project.path, project.values)
    cells = nbformat.read(project.copy, 4).cells
    assert cells[-1].outputs[0].text == "seed 3\n"
    assert "remove-cell" in cells[2].metadata.tags
    assert cells[0].source == "A claim: {prf:ref}`paper-thm-3-3`"  # the page has the text of the source
    assert nbformat.read(project.path, 4).cells[0].source == "A claim: Theorem 3.3"
    assert " s\n" in capsys.readouterr().out
    pipeline.execute(project.path, project.values)
    assert capsys.readouterr().out == "  a: unchanged\n"


def test_the_key_follows_what_the_notebook_depends_on(project):
    seen = {pipeline.key(project.path, project.values)}
    for name, text in {
        "hmmlib/x.py": "x = 2\n",
        "hmmlib/moving/x.js": "1",
        "notebooks/a.md": project.path.with_suffix(".md").read_text() + " ",
        "requirements.lock": "a==2\n",
        "seed.yaml": "seed: 4\n",
        "notebooks/a.ipynb": project.path.read_text() + " ",
    }.items():
        (project.root / name).write_text(text)
        seen.add(pipeline.key(project.path, project.values))
    assert len(seen) == 7
    (project.root / "results" / "r.json").write_text("{}")
    assert pipeline.key(project.path, project.values) in seen, "this notebook reads no results"


def test_a_failing_cell_stops_the_build_and_leaves_no_copy(project, capsys):
    pipeline.execute(project.path, project.values)
    project.values.write_text("seed: 9\n")
    with pytest.raises(SystemExit, match="seed too large"):
        pipeline.execute(project.path, project.values)
    assert not project.copy.exists()
    assert len(list(project.copy.parent.glob("*.failed.ipynb"))) == 1


def test_a_missing_copy_is_a_warning_on_its_page(tmp_path, caplog):
    told = []
    env = SimpleNamespace(note_dependency=told.append)
    app = SimpleNamespace(srcdir=tmp_path, env=env)
    source = ["committed"]
    companion.show_executed(app, "notebooks/a", source)
    assert source == ["committed"]
    assert told == [str(tmp_path / "build" / "executed" / "notebooks" / "a.ipynb")]
    executed = Path(told[0])
    executed.parent.mkdir(parents=True)
    executed.write_text("executed")
    companion.show_executed(app, "notebooks/a", source)
    assert source == ["executed"]


def test_the_workflows_repository_wins(monkeypatch):
    config = SimpleNamespace(html_theme_options={"repository_url": "X"})
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    companion.repository_from_environment(None, config)
    assert config.html_theme_options["repository_url"].endswith("X")
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/fork")
    companion.repository_from_environment(None, config)
    assert config.html_theme_options["repository_url"] == "https://" + "github.com/someone/fork"


@pytest.mark.parametrize(
    ("label", "number"),
    [("paper-thm-3-3", "3.3"), ("paper-claim-B-1", "B.1"), ("paper-eq-b-1", "B.1"), ("own-remark", None)],
)
def test_labels_carry_the_papers_numbers(label, number):
    found = companion.PAPER_LABEL.match(label)
    assert (found and found["number"].upper().replace("-", ".")) == number
