"""Speed and memory of Part I beside the published package and other references, measured in one run.

python benchmarks/part1.py [--peer PYTHON] [--rows NAME ...] [--repeats N]

Results go to benchmarks/results/part1.json and part1.csv. How it measures: README.md beside this file.
"""
from harness import Row, main, widest

INDICATORS = {"hv": "HV", "ud": "UD", "os": "OS", "as": "AS", "onvg": "ONVG", "onvgr": "ONVGR",
              "relative-onvg": "ONVG_rel", "area": "area"}

# ---- one input, two ways -------------------------------------------------------------------------------------
METRICS = ["acc", "eod+gender", "eod+race"]
STEPS = [k/10 for k in range(11)]


def make_systems(small=False):
    "Two systems with models between accurate and fair, every group with both classes: no undefined value anywhere."
    import numpy as np
    n, models, rng = (300, 2, np.random.default_rng(1)) if small else (3000, 25, np.random.default_rng(0))
    y, gender = rng.integers(0, 2, n), rng.choice(["f", "m"], n)
    race = rng.choice(["asian", "black", "white"], n, p=[.2, .3, .5])
    shared = {"ground-truth": y.tolist(), "attributes": {"gender": gender.tolist(), "race": race.tolist()}}

    def scores(lean, bias):
        z = lean*(y - .5) + bias*(gender == "m") + .6*bias*(race == "white") + rng.normal(size=n)
        return np.round(1/(1 + np.exp(-z)), 4).tolist()

    return {name: {"scores": [scores(top*(.4 + .6*k), slope*k) for k in np.linspace(0, 1, models)], **shared}
            for name, top, slope in (("first", 2., .9), ("second", 1.7, .5))}


def ours_solve_evaluate(systems, thresholds=STEPS):
    import numpy as np
    from fairical_nb.indicators import compare
    from fairical_nb.scores import Scores
    from fairical_nb.solutions import a_posteriori
    solved = {name: a_posteriori(Scores.from_dict(s), METRICS, thresholds=None if thresholds is None else np.array(thresholds)).deduplicate()
              for name, s in systems.items()}
    points = {name: s.frame[METRICS].to_numpy() for name, s in solved.items()}
    table = compare(points, next(iter(solved.values())).directions)
    return {name: {key: float(table.loc[name, key]) for key in INDICATORS.values()} for name in systems}


def ours_solve_evaluate_all(systems):
    return ours_solve_evaluate(systems, None)


def peer_solve_evaluate(systems):
    from fairical.scores import Scores
    from fairical.utils import extend_indicators
    solved = {name: Scores.model_validate(s).solutions_a_posteriori(METRICS, list(STEPS)).deduplicate()
              for name, s in systems.items()}
    found = {name: s.deduplicate().indicators() for name, s in solved.items()}
    extend_indicators(list(found.values()))
    return {name: {INDICATORS[key]: float(value) for key, value in row.items()} for name, row in found.items()}


def make_sweep(small=False):
    "One model whose scores are all different: as many thresholds as samples, and nobody."
    import numpy as np
    n, rng = 500 if small else 10_000, np.random.default_rng(2)
    y = rng.integers(0, 2, n)
    score = (.3*y + .7*rng.random(n)).argsort().argsort()/n
    return {"y": y, "score": score, "gender": rng.choice(["f", "m"], n)}


SWEEP = ["acc", "eod+gender", "dpd+gender"]
PART = 50  # thresholds that the reference does; its time is multiplied up


def thresholds_part(score):
    import numpy as np
    return np.unique(score)[np.linspace(0, len(score) - 1, PART).astype(int)]


def ours_sweep(d):
    from fairical_nb.objectives import sweep
    table = sweep(d["y"], d["score"], {"gender": d["gender"]}, SWEEP)
    return {m: table[m].loc[thresholds_part(d["score"])].tolist() for m in SWEEP}


def peer_sweep(d):
    from fairical.metrics import calculate_metric
    at = thresholds_part(d["score"]).tolist()
    groups = {"gender": d["gender"].tolist()}
    return {m: calculate_metric(m, d["y"].tolist(), d["score"].tolist(), at, groups) for m in SWEEP}


def make_million(small=False):
    import numpy as np
    n, rng = 1000 if small else 1_000_000, np.random.default_rng(3)
    y = rng.integers(0, 2, n)
    return {"y": y, "score": np.clip(.3*y + .7*rng.random(n), 0, 1), "gender": rng.choice(["f", "m"], n)}


def ours_million(d):
    from fairical_nb.objectives import sweep
    utility = "fpr tpr tnr fnr prec rec f1 acc bal_acc roc_auc avg_prec".split()
    names = utility + [f"{k}+gender" for k in ("dpd", "dpr", "eod", "eor")]
    names += [f"{k}+{u}+gender" for k in ("minmaxd", "minmaxr") for u in utility]
    return {"metrics": len(names), "rows": len(sweep(d["y"], d["score"], {"gender": d["gender"]}, names))}


def make_front(small=False):
    "A front of 3,000 points, dense enough that niches are full."
    import numpy as np
    n, rng = 100 if small else 3000, np.random.default_rng(4)
    angle = np.sort(rng.random(n)*np.pi/2)
    return {"points": 1 - np.stack([np.cos(angle), np.sin(angle)], 1)}


def ours_ud(d):
    from fairical_nb.indicators import indicators
    return indicators(d["points"], ["min", "min"])["UD"]


def peer_ud(d):
    from fairical.solutions import _uniform_distribution
    return float(_uniform_distribution(d["points"]))


def make_cloud(small=False):
    "Points of which one in ten has a near twin."
    import numpy as np
    n, rng = 1000 if small else 100_000, np.random.default_rng(5)
    points = rng.random((n, 3))
    twins = rng.choice(n, n//10, replace=False)
    points[twins[::2]] = points[twins[1::2]] + 1e-7
    return {"points": points}


def make_identical(small=False):
    import numpy as np
    return {"points": np.full((100 if small else 50_000, 3), .5)}


def ours_dedup(d):
    from fairical_nb.dedup import representatives
    return representatives(d["points"]).nonzero()[0].tolist()


def dbscan(d):
    import numpy as np
    from sklearn.cluster import DBSCAN
    label = DBSCAN(eps=1e-6, min_samples=1).fit_predict(d["points"])
    return np.sort(np.unique(label, return_index=True)[1]).tolist()


def make_big_cloud(small=False):
    import numpy as np
    return {"points": np.random.default_rng(6).random((1000 if small else 1_000_000, 3))}


def ours_nondominated(d):
    from fairical_nb.indicators import nondominated
    return nondominated(d["points"], ["min"]*3).nonzero()[0].tolist()


def pymoo_nondominated(d):
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting
    return sorted(int(i) for i in NonDominatedSorting().do(d["points"], only_non_dominated_front=True))


# ---- hypervolume in many objectives --------------------------------------------------------------------------
def make_simplex(objectives, n):
    "Points whose losses sum to 1: none dominates another, and for both packages about the worst that can come."
    def make(small=False):
        import numpy as np
        return {"points": np.random.default_rng(7).dirichlet(np.ones(objectives), 20 if small else n)}
    return make


def ours_hv(method):
    def job(d):
        import numpy as np
        from fairical_nb.hypervolume import volume
        return volume(d["points"], np.ones(d["points"].shape[1]), method=method)._asdict()
    return job


def pymoo_hv(d):
    import numpy as np
    from pymoo.indicators.hv import HV
    return {"value": float(HV(ref_point=np.ones(d["points"].shape[1]))(d["points"]))}


def beyond_error(ours, reference):
    "How far the values lie apart beyond four standard errors (none, if both are exact)."
    return max(abs(ours["value"] - reference["value"]) - 4*ours["error"], 0.)


# ---- a system too large to be held ---------------------------------------------------------------------------
LARGE = ["acc", "eod+gender", "dpd+gender"]


def make_large(small=False):
    "25 models of a million samples, between accurate and fair."
    import numpy as np
    n, models, rng = (1000, 3, np.random.default_rng(8)) if small else (1_000_000, 25, np.random.default_rng(9))
    y, gender = rng.integers(0, 2, n), rng.choice(["f", "m"], n)
    lean = np.linspace(.5, 1, models)
    return {"y": y, "gender": gender} | {f"model-{k}": 1/(1 + np.exp(-(2*s*(y - .5) + s*(gender == "m") + rng.normal(size=n)))) for k, s in enumerate(lean)}


def large(d, front_only):
    from fairical_nb.indicators import indicators
    from fairical_nb.scores import Scores
    from fairical_nb.solutions import a_posteriori
    scores = Scores({k: v for k, v in d.items() if k.startswith("model")}, d["y"], {"gender": d["gender"]})
    s = a_posteriori(scores, LARGE, front_only=front_only)
    front = s if front_only else s.nondominated()
    HV = indicators(front.points, front.directions)["HV"]
    return {"points": len(s) + s.dropped.get("dominated", 0), "front": len(front), "HV": HV, "thresholds": float(front.frame["threshold"].sum())}


def ours_large(d): return large(d, True)
def all_points(d): return large(d, False)


ROWS = {
    "solve_evaluate": Row("2 systems x 25 models x 3,000 samples x 3 objectives at 11 thresholds: solve and evaluate",
                          make_systems, ours_solve_evaluate, peer_solve_evaluate, peer=True,
                          reference_name="fairical 2.0.3", ratio=100, same=widest),
    "solve_evaluate_all": Row("the same systems at all thresholds", make_systems, ours_solve_evaluate_all, repeats=(2, 1)),
    "sweep": Row("acc, eod and dpd of 10,000 samples at all unique scores", make_sweep, ours_sweep, peer_sweep, peer=True,
                 reference_name="fairical 2.0.3", ratio=1000, scale=10_001/PART, same=widest),
    "million": Row("all 37 metrics of 1,000,000 samples at all unique scores", make_million, ours_million,
                   seconds=5, megabytes=800, repeats=(1, 1)),
    "ud": Row("uniform distribution of a front of 3,000 points (ours: all six indicators)", make_front, ours_ud, peer_ud,
              peer=True, reference_name="fairical 2.0.3", ratio=500, same=widest),
    "dedup": Row("deduplication of 100,000 points in 3-D", make_cloud, ours_dedup, dbscan,
                 reference_name="scikit-learn DBSCAN", ratio=3, same=widest),
    "identical": Row("deduplication of 50,000 identical points", make_identical, ours_dedup, seconds=2, megabytes=200),
    "nondominated": Row("non-dominated rows of 1,000,000 points in 3-D", make_big_cloud, ours_nondominated,
                        pymoo_nondominated, reference_name="pymoo", ratio=5, same=widest, repeats=(3, 1)),
    "hv_5": Row("hypervolume of 1,000 points in 5 objectives (both sides call moocore)", make_simplex(5, 1000), ours_hv("moocore"),
                pymoo_hv, reference_name="pymoo", same=beyond_error),
    "hv_6_pygmo": Row("hypervolume of 1,000 points in 6 objectives, exact by pygmo", make_simplex(6, 1000), ours_hv("pygmo"),
                      ours_hv("moocore"), reference_name="moocore, exact", same=beyond_error, needs=("pygmo",), repeats=(3, 1)),
    "hv_8_pygmo": Row("hypervolume of 150 points in 8 objectives, exact by pygmo", make_simplex(8, 150), ours_hv("pygmo"),
                      ours_hv("moocore"), reference_name="moocore, exact", same=beyond_error, needs=("pygmo",), ratio=10, repeats=(3, 1)),
    "hv_10_pygmo": Row("hypervolume of 70 points in 10 objectives, exact by pygmo", make_simplex(10, 70), ours_hv("pygmo"),
                       ours_hv("moocore"), reference_name="moocore, exact", same=beyond_error, needs=("pygmo",), ratio=10, repeats=(3, 1)),
    "hv_8_approx": Row("hypervolume of 150 points in 8 objectives, an estimate from 1,048,576 directions with its error; difference beyond 4 standard errors",
                       make_simplex(8, 150), ours_hv("approx"), ours_hv("moocore"), reference_name="moocore, exact", same=beyond_error, repeats=(3, 1)),
    "hv_10_approx": Row("hypervolume of 1,000 points in 10 objectives, an estimate: no exact way takes less than minutes",
                        make_simplex(10, 1000), ours_hv("approx"), repeats=(1, 1)),
    "large": Row("front of 25 models x 1,000,000 samples x 3 metrics at all thresholds, model by model", make_large, ours_large,
                 all_points, reference_name="the same from one table of all points", same=widest, megabytes=1200, repeats=(1, 1)),
}


if __name__ == "__main__":
    main(ROWS, "part1", "Part I's speed and memory beside the published package; results in benchmarks/results")
