"The definitions word for word: loops and fractions, no arrays, slow on purpose. They judge the fast forms."
from fractions import Fraction
from itertools import combinations
from math import sqrt

UTILITIES = ("fpr", "tpr", "tnr", "fnr", "rec", "prec", "f1", "acc", "bal_acc", "roc_auc", "avg_prec")


def metrics_of(*attributes):
    "Every metric name that these attributes allow: 11 utilities and 26 per attribute."
    per = [f"{f}+{{}}" for f in ("dpd", "dpr", "eod", "eor")] + [f"{f}+{u}+{{}}" for f in ("minmaxd", "minmaxr") for u in UTILITIES]
    return [*UTILITIES, *(p.format(a) for a in attributes for p in per)]


# Rates: rows are (y, score, weight); None is undefined

def over(a, b): return None if b == 0 else Fraction(a) / Fraction(b)


def weigh(rows, test): return sum((Fraction(w) for y, s, w in rows if test(y, s)), Fraction(0))


def rate(name, rows, t):
    tp, fp = weigh(rows, lambda y, s: y == 1 and s >= t), weigh(rows, lambda y, s: y == 0 and s >= t)
    fn, tn = weigh(rows, lambda y, s: y == 1 and s < t), weigh(rows, lambda y, s: y == 0 and s < t)
    if name == "selection": return over(tp + fp, tp + fp + fn + tn)
    if name in ("tpr", "rec"): return over(tp, tp + fn)
    if name == "fnr": return over(fn, tp + fn)
    if name == "fpr": return over(fp, fp + tn)
    if name == "tnr": return over(tn, fp + tn)
    if name == "prec": return over(tp, tp + fp)
    if name == "f1": return over(2 * tp, 2 * tp + fp + fn)
    if name == "acc": return over(tp + tn, tp + fp + fn + tn)
    if name == "bal_acc": return None if tp + fn == 0 or fp + tn == 0 else (tp / (tp + fn) + tn / (fp + tn)) / 2
    if name == "roc_auc": return roc_auc(rows)
    if name == "avg_prec": return avg_prec(rows)
    raise KeyError(name)


def roc_auc(rows):
    "Share of (positive, negative) pairs in which the positive has the higher score; ties count half."
    pairs = [(s, r, Fraction(w) * Fraction(v)) for y, s, w in rows if y == 1 for z, r, v in rows if z == 0]
    return over(sum(w * (1 if s > r else Fraction(1, 2) if s == r else 0) for s, r, w in pairs), sum(w for *_, w in pairs))


def avg_prec(rows):
    "Sum over distinct scores, from the highest, of the step of recall times precision."
    total, seen = Fraction(0), Fraction(0)
    if weigh(rows, lambda y, s: y == 1) == 0: return None
    for t in sorted({s for _, s, _ in rows}, reverse=True):
        recall, precision = rate("tpr", rows, t), rate("prec", rows, t)
        if precision is not None: total += (recall - seen) * precision
        seen = recall
    return total


def gap(values): return None if None in values else max(values) - min(values)
def ratio(values): return None if None in values else Fraction(1) if max(values) == 0 else Fraction(min(values)) / max(values)


def metric(name, y, score, attributes, t, *, weight=None, undefined=None):
    "One metric at one threshold, as a fraction; None where it is undefined. `undefined=0` counts empty rates as 0."
    rows = list(zip(y, score, weight if weight is not None else [1] * len(y)))
    if name in UTILITIES: return filled(rate(name, rows, t), undefined)
    head, rest = name.split("+", 1)
    if head in ("minmaxd", "minmaxr"): needed, attribute = rest.split("+", 1)
    else: needed, attribute = {"d": "selection", "e": "tpr fpr"}[head[0]], rest
    label = list(zip(*(attributes[a] for a in attribute.split("&"))))
    parts = [[r for r, g in zip(rows, label) if g == one] for one in dict.fromkeys(label)]
    compare, worst = (gap, max) if head[-1] == "d" else (ratio, min)
    found = [compare([filled(rate(u, p, t), undefined) for p in parts]) for u in needed.split()]
    return None if None in found else worst(found)


def filled(value, undefined): return undefined if value is None else value


# Fronts: points are rows of losses, less is better

def dominates(a, b): return all(x <= y for x, y in zip(a, b)) and any(x < y for x, y in zip(a, b))
def front(losses): return [i for i, p in enumerate(losses) if not any(dominates(q, p) for q in losses)]


def hypervolume(losses, nadir=None):
    "Union of the boxes [x, nadir] by inclusion and exclusion, exactly: for a dozen points."
    points = list(dict.fromkeys(tuple(map(Fraction, p)) for p in losses))
    nadir = nadir or [1] * len(points[0])
    total = Fraction(0)
    for k in range(1, len(points) + 1):
        for some in combinations(points, k):
            volume = Fraction(1)
            for r, *xs in zip(nadir, *some): volume *= max(Fraction(r) - max(xs), 0)
            total += volume if k % 2 else -volume
    return total


def uniformity(losses, sigma):
    n = len(losses)
    if n == 1: return 1.0
    niche = [sum(distance2(p, q) < Fraction(sigma) ** 2 for q in losses) - 1 for p in losses]
    mean = Fraction(sum(niche), n)
    return 1 / (1 + sqrt(sum((c - mean) ** 2 for c in niche) / (n - 1)))


def spreads(losses, nadir=None, ideal=None):
    "OS and AS of the front's rows."
    N = len(losses[0])
    shares = [(max(c) - min(c)) / abs(Fraction(r) - Fraction(z)) for c, r, z in zip(zip(*exactly(losses)), nadir or [1] * N, ideal or [0] * N)]
    product = Fraction(1)
    for s in shares: product *= s
    return product, sum(shares) / N


def exactly(rows): return [[Fraction(x) for x in row] for row in rows]
def distance2(p, q): return sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(p, q))


# Deduplication

def greedy(points, eps):
    kept = []
    for i, p in enumerate(points):
        if all(distance2(p, points[j]) > Fraction(eps) ** 2 for j in kept): kept.append(i)
    return kept


def chained(points, eps):
    "First row of each connected component of 'at most eps apart'."
    component, kept = {}, []
    for i in range(len(points)):
        if i in component: continue
        kept.append(i)
        component[i], queue = i, [i]
        while queue:
            j = queue.pop()
            for k in range(len(points)):
                if k not in component and distance2(points[j], points[k]) <= Fraction(eps) ** 2: component[k] = i; queue.append(k)
    return kept


# Radar

def area(values):
    "Surveyor's formula over the regular polygon, divided by that of the full one."
    from math import cos, pi, sin
    def surveyed(r):
        corners = [(x * cos(2 * pi * i / len(r)), x * sin(2 * pi * i / len(r))) for i, x in enumerate(r)]
        return abs(sum(a * d - b * c for (a, b), (c, d) in zip(corners, corners[1:] + corners[:1]))) / 2
    return surveyed(values) / surveyed([1] * len(values))
