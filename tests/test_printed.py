"What the first paper printed: its areas follow from its indicators, and point sets with its indicators give its tables."
import json
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from fairical_nb import radar
from fairical_nb.indicators import compare

AXES = ["ONVG_rel", "ONVGR", "UD", "AS", "HV"]


@pytest.fixture(scope="module")
def rows(root):
    rows = pd.DataFrame(json.loads((root / "data/published/paper_rows.json").read_text()))
    assert len(rows) == 14
    return rows.rename(columns={"relative-onvg": "ONVG_rel", "onvgr": "ONVGR", "ud": "UD", "as": "AS", "hv": "HV"})


def between(row, order):
    "Lowest and highest area that the printed, rounded indicators allow."
    r = row[order].to_numpy(dtype=float)
    return radar.area(np.clip(r - .005, 0, 1)), radar.area(np.clip(r + .005, 0, 1))


def test_all_printed_areas_follow_from_the_printed_indicators_within_rounding(rows):
    for _, row in rows.iterrows():
        low, high = between(row, AXES)
        assert low - .005 <= row["area"] <= high + .005, row.to_dict()


def test_in_no_other_order_of_the_axes(rows):
    fits = [o for o in radar.orders(5) if all(low - .005 <= row["area"] <= high + .005 for _, row in rows.iterrows() for low, high in [between(row, [AXES[i] for i in o])])]
    assert fits == [(0, 1, 2, 3, 4)]


def test_the_first_use_case_by_hand():
    assert radar.area([1, .5, 1, 0, .35]) == pytest.approx(.27) and radar.area([1, .5, 1, 0, .04]) == pytest.approx(.208)
    lowest, highest = (f(radar.area([(1, .1, .9, .1, .8)[i] for i in o]) for o in radar.orders(5)) for f in (min, max))
    assert (lowest, highest) == (pytest.approx(.218), pytest.approx(.376))


def test_which_rankings_depend_on_the_order_of_the_axes(rows):
    "Of all pairs of systems in a table only one Shenzhen pair changes places, in 2 of 12 orders."
    flips = {}
    for table, block in rows.groupby("table"):
        for (_, a), (_, b) in combinations(block.iterrows(), 2):
            signs = [np.sign(radar.area(a[o].to_numpy(dtype=float)) - radar.area(b[o].to_numpy(dtype=float))) for o in ([AXES[i] for i in order] for order in radar.orders(5))]
            turned = sum(s != signs[0] for s in signs)
            if turned: flips[table, a["system"], b["system"]] = turned
    assert list(flips.values()) == [2] and next(iter(flips))[0].startswith("15")


@pytest.mark.parametrize("name", ["uc1", "uc2", "uc3", "table9b"])
def test_point_sets_with_the_printed_indicators_give_the_printed_tables(root, name):
    case = json.loads((root / f"tests/data/fits/{name}.json").read_text())
    table = compare({s: np.column_stack(list(v["points"].values())) for s, v in case["systems"].items()}, ["max", "min"])
    columns = {"hv": "HV", "relative-onvg": "ONVG_rel", "onvgr": "ONVGR", "ud": "UD", "as": "AS", "area": "area"}
    for system, printed in case["printed"].items():
        for key, text in printed.items(): assert f"{table.loc[system, columns[key]]:.2f}" == text, (system, key)
