"A front without its dominated points stays one through a file, and the commands say so."
import json

import numpy as np
from click.testing import CliRunner

from fairical_nb.cli import main
from fairical_nb.scores import Scores
from fairical_nb.solutions import Solutions


def test_front_only_survives_the_file_and_gives_no_share(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 80)
    Scores({f"m{i}": rng.random(80).round(2) for i in range(3)}, y, {"gender": rng.choice(["f", "m"], 80)}).save(tmp_path / "s.json")
    monkeypatch.chdir(tmp_path)
    for option, folder in ((["--front-only"], "front"), ([], "all")):
        assert CliRunner().invoke(main, ["solve", "s.json", "-D", "-o", folder, *option]).exit_code == 0
    front, whole = Solutions.load("front/s.json"), Solutions.load("all/s.json")
    assert len(front) < len(whole) and front.dropped["dominated"] + len(front) == len(whole) and front.samples == {"n": 80, "dropped": 0}
    found = [json.loads(CliRunner().invoke(main, ["evaluate", f"{f}/s.json", "-D", "-t", "json"]).stdout)["systems"]["s"] for f in ("front", "all")]
    assert found[0]["HV"] == found[1]["HV"] and found[0]["ONVG"] == found[1]["ONVG"] and found[0]["ONVGR"] is None and found[1]["ONVGR"] < 1


def test_an_estimated_volume_says_its_error(tmp_path):
    rng = np.random.default_rng(1)
    (tmp_path / "s.json").write_text(json.dumps({"points": {m: rng.random(20).tolist() for m in ("acc", "dpd+a", "eod+a")}, "metadata": {"identifiers": [0] * 20, "identifier-names": ["m"], "thresholds": [.5] * 20}}))
    said = CliRunner().invoke(main, ["evaluate", str(tmp_path / "s.json"), "--hv-method", "approx"])
    assert said.exit_code == 0 and "HV of s is an estimate, standard error" in said.stdout
    assert json.loads(CliRunner().invoke(main, ["evaluate", str(tmp_path / "s.json"), "--hv-method", "approx", "-t", "json"]).stdout)["HV_error"]["s"] > 0
