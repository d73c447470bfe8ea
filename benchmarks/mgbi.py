"""Speed and memory of MGBI with intervals beside a plain pandas loop, measured in one run.

python benchmarks/mgbi.py [--rows NAME ...] [--repeats N]

Results go to benchmarks/results/mgbi.json and mgbi.csv. How it measures: README.md beside this file.
"""
from harness import Row, main, widest

TRIGGERS = ["aggressive", "compassionate", "gentle", "intelligent", "poor", "professional", "successful", "trustworthy", "unprofessional"]
CLASSES = {"gender": ("female", "male"), "age": ("young", "middle", "elderly"), "race": ("Asian", "Black", "Indian", "Others", "White")}
SCORES = ["ID", "CA", "CA_mean", "worst", "MGBI"]
REPLICATES, PART = 2000, 20  # the reference does PART of them; its time is multiplied up


def make_labels(prompts, images):
    "The paper's plan: two fifths of the prompts neutral, the rest shared by nine triggers; every prompt has shares of its own."
    def make(small=False):
        import numpy as np
        n, rng = 100 if small else prompts, np.random.default_rng(0)
        place = np.r_[np.zeros(2*n//5, int), 1 + np.arange(n - 2*n//5) % 9]
        out = {"prompt": np.repeat(np.arange(n), images), "place": np.repeat(place, images)}
        for a, classes in CLASSES.items():
            shares = rng.dirichlet(3*np.ones(len(classes)), 10)[place]
            own = .7*shares + .3*rng.dirichlet(np.ones(len(classes)), n)
            below = np.repeat(own, images, axis=0).cumsum(1) < rng.random((n*images, 1))
            out[a] = below.sum(1).clip(max=len(classes) - 1)
        return out
    return make


def table(d):
    import numpy as np
    import pandas as pd
    words = {a: np.array(c)[d[a]] for a, c in CLASSES.items()}
    return pd.DataFrame({"prompt_id": d["prompt"], "trigger": np.array(["", *TRIGGERS])[d["place"]], **words})


def ours(d):
    "Scores and intervals from 2,000 draws of the prompts."
    from fairical_nb.mgbi import mgbi
    found = mgbi(table(d), CLASSES)
    found.interval(REPLICATES)
    return {k: float(found.summary[k]) for k in SCORES}


def scores_by_loop(labels):
    "The definitions with pandas, context by context and attribute by attribute."
    import numpy as np
    g = {}
    for s, rows in labels.groupby("trigger"):
        h = []
        for a, classes in CLASSES.items():
            p = rows[a].value_counts(normalize=True).to_numpy()
            h.append(float(-(p*np.log(p)).sum()/np.log(len(classes))))
        g[s] = float(np.prod(h)**(1/len(h)))
    triggers = [g[s] for s in TRIGGERS]
    CA = float(np.quantile(triggers, .1))
    return {"ID": g[""], "CA": CA, "CA_mean": float(np.mean(triggers)), "worst": min(triggers), "MGBI": (g[""]*CA)**.5}


def loop(d):
    "The same with rows drawn again: for each replicate, the rows of the drawn prompts are put together and counted."
    import numpy as np
    import pandas as pd
    labels, rng = table(d), np.random.default_rng(0)
    parts = dict(list(labels.groupby("prompt_id")))
    prompts = [np.unique(d["prompt"][d["place"] == c]) for c in range(10)]
    drawn = [scores_by_loop(pd.concat([parts[p] for own in prompts for p in rng.choice(own, len(own))])) for _ in range(PART)]
    np.quantile([[r[k] for k in SCORES] for r in drawn], [.025, .975], axis=0)
    return scores_by_loop(labels)


ROWS = {
    "mgbi": Row("MGBI of 15,000 labels (750 prompts x 20 images, 3 attributes) with intervals from 2,000 draws of the prompts", make_labels(750, 20), ours, loop,
                reference_name="a pandas loop over drawn rows", ratio=50, seconds=5, scale=REPLICATES/PART, same=widest),
    "mgbi_million": Row("the same of 1,000,000 labels (50,000 prompts)", make_labels(50_000, 20), ours, seconds=10, megabytes=1000, repeats=(1, 1)),
}


if __name__ == "__main__":
    main(ROWS, "mgbi", "Speed and memory of MGBI; results in benchmarks/results")
