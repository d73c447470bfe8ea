"The commands generate, label and mgbi, chained on the embedded pipeline, against the functions that they stand for."
import json

import pandas as pd
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from click.testing import CliRunner  # noqa: E402
from PIL import Image  # noqa: E402

from fairical_nb import tiny_pipeline  # noqa: E402
from fairical_nb.attributes import TAXONOMY  # noqa: E402
from fairical_nb.cli import main  # noqa: E402
from fairical_nb.mgbi import FewImagesWarning, mgbi  # noqa: E402


def typed(*words):
    done = CliRunner().invoke(main, [str(w) for w in words])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_twin_draws_by_its_name_and_says_nothing_of_its_loading(tmp_path):
    done = CliRunner().invoke(main, ["generate", "tiny_sd15", "-o", str(tmp_path / "album"), "--first", "1", "--seed", "3"])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"{tmp_path / 'album'}: 10 images of tiny_sd15\n")
    manifest = pd.read_csv(tmp_path / "album" / "manifest.csv", keep_default_na=False)
    assert set(manifest["model"]) == {"tiny_sd15"} and {Image.open(tmp_path / "album" / p).size for p in manifest["image"]} == {(32, 32)}


def test_generate_label_and_mgbi_chained_by_labeller_and_judge(tmp_path):
    torch.set_num_threads(1)
    typed("generate", "tiny", "-o", tmp_path / "album", "--first", 2, "-n", 2, "--batch-size", 20)
    manifest = pd.read_csv(tmp_path / "album" / "manifest.csv", keep_default_na=False)
    assert len(manifest) == 10 * 2 * 2 and manifest["error"].eq("").all() and manifest["trigger"].nunique() == 10
    pictures = [Image.open(tmp_path / "album" / p) for p in manifest["image"]]
    for name, reader in (("tiny", tiny_pipeline.labeller()), ("tiny-judge", tiny_pipeline.judge())):
        typed("label", name, tmp_path / "album", "-o", tmp_path / f"{name}.csv")
        labels = pd.read_csv(tmp_path / f"{name}.csv", keep_default_na=False)
        assert (labels[list(TAXONOMY)].to_numpy() == reader.label(pictures)[list(TAXONOMY)].to_numpy()).all()
        text = typed("mgbi", tmp_path / f"{name}.csv", "-t", "json", "--interval", "none")
        with pytest.warns(FewImagesWarning):
            mine = mgbi(labels, TAXONOMY)
        assert mine.ID > 0 and f"{float(mine.ID):.6f}"[:7] in json.dumps(json.loads(text[text.index("{"):]))
