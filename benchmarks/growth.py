"""How time and memory of Part I grow: n = 1,000 to 1,000,000, and one picture.

python benchmarks/growth.py [--rows NAME ...] [--repeats N]

Results go to benchmarks/results/growth.json and growth.csv, the picture to figures/benchmark_growth.png and .svg.
"""
import functools
import math

from harness import HERE, Row, main

SIZES = (1_000, 10_000, 100_000, 1_000_000)


def make_scores(n, small=False):
    "One model whose scores are all different."
    import numpy as np
    rng = np.random.default_rng(2)
    n = 500 if small else n
    y = rng.integers(0, 2, n)
    return {"y": y, "score": (.3*y + .7*rng.random(n)).argsort().argsort()/n, "gender": rng.choice(["f", "m"], n)}


def make_cloud(n, small=False):
    "Points in 3-D of which one in ten has a near twin."
    import numpy as np
    rng = np.random.default_rng(5)
    n = 500 if small else n
    points = rng.random((n, 3))
    twins = rng.choice(n, n//10, replace=False)
    points[twins[::2]] = points[twins[1::2]] + 1e-7
    return {"points": points}


def make_arc(n, small=False):
    "A front in 2-D, denser the more points there are."
    import numpy as np
    angle = np.sort(np.random.default_rng(4).random(500 if small else n)*np.pi/2)
    return {"points": 1 - np.stack([np.cos(angle), np.sin(angle)], 1)}


def sweep(d):
    from fairical_nb.objectives import sweep
    return len(sweep(d["y"], d["score"], {"gender": d["gender"]}, ["acc", "eod+gender", "dpd+gender"]))


def dedup(d):
    from fairical_nb.dedup import representatives
    return int(representatives(d["points"]).sum())


def nondominated(d):
    from fairical_nb.dominance import nondominated
    return int(nondominated(d["points"], ["min"]*3).sum())


def ud(d):
    from fairical_nb.dominance import uniformity
    return uniformity(d["points"], .01)


JOBS = {"sweep": ("acc, eod and dpd at all scores", make_scores, sweep), "dedup": ("deduplication, 3-D", make_cloud, dedup),
        "nondominated": ("non-dominated rows, 3-D", make_cloud, nondominated), "ud": ("uniform distribution of a front in 2-D", make_arc, ud)}
ROWS = {f"{job}_{n}": Row(f"{what}, n = {n:,}", functools.partial(make, n), ours, repeats=(5 if n < SIZES[-1] else 1, 1))
        for job, (what, make, ours) in JOBS.items() for n in SIZES}


def with_growth(rows):
    "Adds job, n, and the exponent since the size before: time grows like n to that power. Draws the picture."
    last = {}
    for r in rows:
        job, n = r["row"].rsplit("_", 1)
        r |= {"job": job, "n": int(n), "exponent": math.log(r["ours_cpu_s"]/last[job][1])/math.log(int(n)/last[job][0]) if job in last else None}
        last[job] = int(n), r["ours_cpu_s"]
    draw(rows)
    return rows


def in_words(rows):
    "The picture for those who cannot see it."
    said = []
    for job, (what, *_) in JOBS.items():
        first, final = (next(r for r in rows if r["job"] == job and r["n"] == n) for n in (SIZES[0], SIZES[-1]))
        said.append(f"{what}: {first['ours_cpu_s']:.2g} s to {final['ours_cpu_s']:.2g} s, {final['ours_peak_mb']:.0f} MB at the end")
    return ("Two log-log charts over n from 1,000 to 1,000,000; left processor time, right peak memory of the whole process. " + "; ".join(said)
            + ". A thin line shows growth in proportion to n.")


def draw(rows):
    import matplotlib
    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from fairical_nb.figures import PAPER, save_figure, style
    plt.rcParams.update(PAPER)
    fig, (time, memory) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for i, (job, (what, *_)) in enumerate(JOBS.items()):
        mine = [r for r in rows if r["job"] == job]
        look = {k: v for k, v in style(i).items() if k != "hatch"}
        time.plot([r["n"] for r in mine], [r["ours_cpu_s"] for r in mine], label=what, **look)
        memory.plot([r["n"] for r in mine], [r["ours_peak_mb"] for r in mine], **look)
    time.plot(SIZES, [n*1e-6 for n in SIZES], color="0.6", linewidth=.7, label="in proportion to n")
    time.set(xscale="log", yscale="log", xlabel="n", ylabel="processor time (s)")
    memory.set(xscale="log", yscale="log", xlabel="n", ylabel="peak memory (MB)", ylim=(50, 500))
    memory.set_yticks([50, 100, 200, 500], ["50", "100", "200", "500"])
    memory.minorticks_off()
    fig.legend(loc="outside lower center", ncols=2)
    save_figure(fig, HERE.parent/"figures"/"benchmark_growth", in_words(rows), backup=False)


if __name__ == "__main__":
    main(ROWS, "growth", "How time and memory of Part I grow; results in benchmarks/results, the picture in figures", with_growth)
