"Fair-GRPO in two processes that really run side by side: case 14 (wrapped), what they log, why they stop, how they resume."
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file

from fairical_nb.grpo_trainer import train

sys.path.insert(0, str(Path(__file__).parent))
from test_fairgrpo import ATTRIBUTES, PROMPTS, SMALL, sd3

torch.set_num_threads(1)
UPDATES = 2


class Alone:
    "Reads each picture by itself: what it says does not depend on which others lie beside it."
    attributes = ATTRIBUTES

    def label(self, images, *, probabilities=False):
        digits = {"gender": 1e3 * images.mean((1, 2, 3)), "age": 1e3 * images.std((1, 2, 3))}
        return pd.DataFrame({a: [classes[int(x) % len(classes)] for x in digits[a]] for a, classes in ATTRIBUTES.items()})

# What each of the two processes does. A monitor that only process 1 obeys must stop both; a run of one update must go on as if it had been two.
SCRIPT = """
import json, sys
from pathlib import Path
import torch; torch.set_num_threads(1)
from accelerate import Accelerator
from test_several_processes import PROMPTS, SMALL, UPDATES, Alone, sd3
from fairical_nb.grpo_trainer import train
a, out = Accelerator(cpu=True), Path(sys.argv[1])
run = lambda folder, **o: train(sd3(), Alone(), PROMPTS, preset=SMALL, batch=4, accelerator=a, folder=out / folder, **{"updates": UPDATES} | o)
whole = run("whole")
run("parts", updates=1)
parts = run("parts", resume=True)
halted = run("halted", monitor=lambda run, row: "process 1 has seen enough" if a.process_index == 1 else "")
limited = run("limited", updates=7, stop={"loss": -1e9})
said = {"processes": a.num_processes, "wrapped": type(whole.run.network).__name__, "rows": whole.table.drop(columns="seconds").to_dict("records"), "halted": [halted.stopped, len(halted.table)], "limited": [limited.stopped, len(limited.table)],
        "resumed": all(torch.equal(whole.run.named[n], parts.run.named[n]) for n in whole.run.named)}
(out / f"said{a.process_index}.json").write_text(json.dumps(said))
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    out = tmp_path_factory.mktemp("two")
    (out / "each.py").write_text(SCRIPT)
    places = os.pathsep.join(str(p) for p in (Path(__file__).parent, Path(__file__).parents[1]))
    launched = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", out / "each.py", out], capture_output=True, text=True, timeout=300,
                              env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": places, "HF_HUB_OFFLINE": "1"})
    assert launched.returncode == 0, launched.stderr[-3000:]
    return out, [json.loads((out / f"said{i}.json").read_text()) for i in (0, 1)]


def test_case14_two_processes_end_with_the_weights_of_one(two, tmp_path):
    out, said = two
    assert [(s["processes"], s["wrapped"]) for s in said] == [(2, "DistributedDataParallel")] * 2
    train(sd3(), Alone(), PROMPTS, preset=SMALL, updates=UPDATES, folder=tmp_path)
    one, other = (load_file(f / "adapter" / "pytorch_lora_weights.safetensors") for f in (tmp_path, out / "whole"))
    assert one.keys() == other.keys() and max(float(v.abs().max()) for v in one.values()) > .01
    assert all(torch.allclose(one[n], other[n], atol=2e-4) for n in one)


def test_case11_all_processes_log_the_same_metrics_and_they_are_those_of_all_pictures(two, tmp_path):
    _, said = two
    assert said[0]["rows"] == said[1]["rows"]
    alone = train(sd3(), Alone(), PROMPTS, preset=SMALL, updates=1).table.iloc[0]
    for name in ("reward", "dead", "kl", "loss", "grad_norm"):
        assert said[0]["rows"][0][name] == pytest.approx(alone[name], abs=2e-4, rel=2e-4), name


def test_a_reason_of_one_process_stops_all(two):
    assert [s["halted"] for s in two[1]] == [["process 1 has seen enough", 1]] * 2
    assert two[1][0]["limited"] == two[1][1]["limited"] and two[1][0]["limited"][1] == 5


def test_case12_two_processes_resume_to_the_bit(two):
    assert all(s["resumed"] for s in two[1])
