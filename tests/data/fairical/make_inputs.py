"""Draws the four inputs of this folder again: 2 systems x 3 models x 60 samples, validation and test.

python make_inputs.py [FOLDER]      default: the folder of this script
"""
import json
import pathlib
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
n = 60
for part, seed in (("validation", 11), ("test", 12)):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    gender = rng.choice(["f", "m"], n)
    race = rng.choice(["asian", "black", "white"], n)
    for name, shift in (("first", .8), ("second", .2)):
        models = []
        for k in range(3):
            z = 1.2*(y - .5)*(1 + .3*k) + shift*(gender == "m")*(1 - .5*k) + .2*(race == "white") + rng.normal(size=n)
            models.append(np.round(1/(1 + np.exp(-z)), 2).tolist())
        d = {"scores": models}
        if name == "first": d["identifiers"] = [f"ray-{k}" for k in range(3)]
        d |= {"ground-truth": y.tolist(), "attributes": {"gender": gender.tolist(), "race": race.tolist()}}
        inner = ["[\n" + ",\n".join("  " + json.dumps(m) for m in v) + "\n ]" if k == "scores" else json.dumps(v) for k, v in d.items()]
        text = ",\n".join(f" {json.dumps(k)}: {v}" for k, v in zip(d, inner))
        (folder/f"{name}_{part}.json").write_text("{\n" + text + "\n}\n")
