"Glyph portraits: the same seed draws the same bytes, sizes and ranges hold, and the codes can be read back."
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairical_nb.attributes import TAXONOMY
from fairical_nb.standins_glyphs import CODES, COLOURS, PAINTS, draw_labels, gratings, portraits, read_codes

GRID = pd.DataFrame([dict(gender=g, age=a, race=r, colour=c) for g in CODES["gender"] for a in CODES["age"] for r in CODES["race"] for c in COLOURS])


@settings(max_examples=20, deadline=None)
@given(n=st.integers(0, 40), size=st.sampled_from([24, 32, 33, 64]), seed=st.integers(0, 2 ** 31), aligned=st.booleans(), texture=st.floats(0, .5), noise=st.floats(0, .5))
def test_sizes_ranges_and_same_seed_same_bytes(n, size, seed, aligned, texture, noise):
    labels = draw_labels(n, seed=seed)
    before = labels.copy()
    options = dict(size=size, seed=seed, aligned=aligned, texture=texture, noise=noise)
    drawn = portraits(labels, **options)
    assert drawn.shape == (n, size, size, 3) and drawn.dtype == np.float32
    assert n == 0 or 0 <= drawn.min() <= drawn.max() <= 1
    assert drawn.tobytes() == portraits(labels, **options).tobytes()
    pd.testing.assert_frame_equal(labels, before)


def test_another_seed_draws_another_picture_of_the_same_code():
    labels = draw_labels(4, seed=0)
    assert (portraits(labels, seed=0) != portraits(labels, seed=1)).any()
    assert not draw_labels(50, seed=0).equals(draw_labels(50, seed=1))


@settings(max_examples=15, deadline=None)
@given(short=st.integers(1, 30), aligned=st.booleans(), seed=st.integers(0, 1000))
def test_the_first_pictures_do_not_depend_on_how_many_follow(short, aligned, seed):
    labels = draw_labels(35, seed=seed)
    assert draw_labels(short, seed=seed).equals(labels[:short])
    assert (portraits(labels[:short], aligned=aligned, seed=seed) == portraits(labels, aligned=aligned, seed=seed)[:short]).all()


def test_blocks_leave_no_seam():
    labels = draw_labels(600, seed=3)
    assert (portraits(labels, seed=3)[:520] == portraits(labels[:520], seed=3)).all()


def test_labels_follow_their_shares():
    labels = draw_labels(20_000, {"gender": [.73, .27], "race": [.69, .12, .08, .06, .05], "colour": [0, 0, 1, 0, 0, 0]}, seed=0)
    for column, shares in {"gender": [.73, .27], "race": [.69, .12, .08, .06, .05], "age": [1 / 3] * 3}.items():
        found = labels[column].value_counts(normalize=True).reindex(CODES[column])
        assert np.abs(found - shares).max() < .015, column
    assert set(labels.colour) == {"green"}
    joint = pd.crosstab(labels.gender, labels.race, normalize=True)
    assert np.abs(joint - np.outer(joint.sum(axis=1), joint.sum(axis=0))).to_numpy().max() < .01  # independent


@pytest.mark.parametrize("size, period", [(32, 5), (64, 5), (32, 3.5), (48, 8)])
def test_textures_are_mirror_images_of_themselves(size, period):
    five = gratings(size, period=period)
    assert five.shape == (5, size, size)
    np.testing.assert_array_equal(five, five[:, :, ::-1])
    np.testing.assert_allclose(five[::-1].transpose(0, 2, 1), five, atol=1e-9)  # and the last is the first on its side


def test_textures_against_a_loop_over_pixels():
    size, period, phase = 9, 4.5, np.random.default_rng(0).random((5, 2))
    for mine, turns in [(gratings(size, period=period), np.zeros((5, 2))), (gratings(size, period=period, phase=phase), phase)]:
        for k, angle in enumerate(np.deg2rad([0, 22.5, 45, 67.5, 90])):
            for row in range(size):
                for column in range(size):
                    x, y = column - (size - 1) / 2, row - (size - 1) / 2
                    a = np.cos(2 * np.pi * (x * np.cos(angle) / period + turns[k, 0])) if k < 4 else 1
                    b = np.cos(2 * np.pi * (y * np.sin(angle) / period + turns[k, 1])) if k > 0 else 1
                    assert mine[k, row, column] == pytest.approx(a * b * (1 if k in (0, 4) else np.sqrt(2)), abs=1e-9)


def _read(pictures, texture=.2):
    "Labels by the nearest of the 180 pictures without noise and shift."
    still = portraits(GRID, noise=0, jitter=0, gradient=0, texture=texture).reshape(len(GRID), -1)
    flat = pictures.reshape(len(pictures), -1)
    return GRID.iloc[((still ** 2).sum(1) - 2 * flat @ still.T).argmin(1)].reset_index(drop=True)


def test_a_known_rule_reads_every_code_at_low_noise():
    labels = draw_labels(500, seed=7)
    assert _read(portraits(labels, jitter=.005, noise=.02, gradient=.02, seed=7)).equals(labels)


def test_a_mirrored_portrait_keeps_its_codes():
    labels = draw_labels(200, seed=8)
    assert _read(portraits(labels, jitter=0, noise=.02, seed=8)[:, :, ::-1]).equals(labels)


def test_difficulty_is_in_the_texture():
    labels = draw_labels(300, seed=9)
    right = {t: (_read(portraits(labels, texture=t, noise=.2, jitter=0, seed=9), texture=t) == labels).mean() for t in (0, .03, .2)}
    assert right[0].race < .35 < right[.03].race < right[.2].race == 1  # without texture, race cannot be read
    assert all(r[["gender", "age", "colour"]].min() == 1 for r in right.values())  # and the rest does not notice


def test_disc_and_square_cover_the_same_area():
    plain = portraits(GRID[(GRID.age == "young") & (GRID.race == "Asian") & (GRID.colour == "red")], noise=0, jitter=0, gradient=0, texture=0, size=64)
    covered = (np.abs(plain - plain[:, :1, :1]) > .02).any(-1).mean((1, 2))
    assert covered[0] == pytest.approx(covered[1], rel=.04)


@pytest.mark.parametrize("change, said", [
    (dict(size=23), "size must be at least 24"), (dict(texture=-.1), "texture must be at least 0"), (dict(noise=float("nan")), "noise must be"),
    (dict(jitter=-1), "jitter must be"), (dict(gradient=-1), "gradient must be"), (dict(period=2), "above 2 pixels")])
def test_bad_options(change, said):
    with pytest.raises(ValueError, match=said):
        portraits(draw_labels(2, seed=0), **change)


@pytest.mark.parametrize("column", list(CODES))
@pytest.mark.parametrize("wrong", [None, np.nan, "somebody", 1])
def test_bad_labels(column, wrong):
    labels = draw_labels(3, seed=0).astype(object)
    labels.loc[1, column] = wrong
    with pytest.raises(ValueError, match=f"{column!r} must hold one of .* but row 1 is"):
        portraits(labels)
    with pytest.raises(ValueError, match=f"{column!r} is missing"):
        portraits(labels.drop(columns=column))


@pytest.mark.parametrize("shares", [[.5, .4], [1.5, -.5], [1], [.2, .3, .5], [np.nan, 1]])
def test_bad_shares(shares):
    with pytest.raises(ValueError, match="shares of 'gender' must be 2 numbers >= 0"):
        draw_labels(3, {"gender": shares}, seed=0)


def test_classes_are_those_of_the_taxonomy():
    assert {a: CODES[a] for a in TAXONOMY} == TAXONOMY and len(COLOURS) == 6


def test_numpys_numbers_as_options_give_the_same_bytes():
    labels, options = draw_labels(6, seed=0), {"texture": .14, "noise": .05, "jitter": .02, "gradient": .1}
    numpys = {k: np.float64(v) for k, v in options.items()}
    assert np.array_equal(portraits(labels, seed=1, **options), portraits(labels, seed=1, **numpys))


# Found by mutants: the whole drawing, pixel by pixel

def naive_portrait(row, u, wave, size, texture, jitter, gradient):
    "One picture without noise by a loop: the shape, its rings, its outline, the ground and the light."
    clip, middle, picture = lambda v: min(1., max(0., v)), (size - 1) / 2, np.empty((size, size, 3))
    v, width = 2 * u[:6] - 1, .055 * size
    R = .4 * size * (1 + jitter * v[2])
    for i in range(size):
        for j in range(size):
            x, y = j - middle - jitter * size * v[0], i - middle - jitter * size * v[1]
            r = np.hypot(x, y)
            edge = (max(abs(x), abs(y)) * 2 / np.sqrt(np.pi) if row.gender == "male" else r) - R
            line = lambda d: clip(.5 + width / 2 - abs(d))
            fill = .45 + jitter * v[3] + texture * wave[i, j] + .3 * sum(line(r - ring * R) for ring in (.72, .48, .24)[:1 + ["young", "middle", "elderly"].index(row.age)])
            outline, ground = line(edge), PAINTS[COLOURS.index(row.colour)]
            cover = max(clip(.5 - edge), outline)
            light = gradient * v[4] * (np.cos(np.pi * v[5]) * (j - middle) + np.sin(np.pi * v[5]) * (i - middle)) / size
            picture[i, j] = ground + cover * (fill + outline * (.08 - fill) - ground) + light
    return picture


@pytest.mark.parametrize("aligned, period", [(True, 5), (False, 4)])
def test_portraits_against_a_loop_over_pixels(aligned, period):
    labels = draw_labels(5, seed=4)
    u, grain = (np.random.default_rng([6, k]) for k in (0, 1))
    u, grain = u.random((5, 8)).astype(np.float32), grain.standard_normal((5, 24, 24, 3), dtype=np.float32)
    waves = gratings(24, period=period, kinds=[CODES["race"].index(r) for r in labels.race], phase=None if aligned else u[:, 6:])
    wanted = [naive_portrait(row, u[k], waves[k], 24, .3, .07, .2) for k, row in enumerate(labels.itertuples())]
    for noise in (0, .1):
        mine = portraits(labels, size=24, texture=.3, period=period, aligned=aligned, noise=noise, jitter=.07, gradient=.2, seed=6)
        assert np.abs(mine - np.clip(np.array(wanted) + noise * grain, 0, 1)).max() < 1e-5


@pytest.mark.parametrize("options", [{}, dict(texture=.4), dict(period=8, texture=.3)], ids=str)
def test_codes_are_read_back_with_the_options_they_were_drawn_with(options):
    labels = draw_labels(150, seed=5)
    drawn = portraits(labels, size=40, jitter=.005, noise=.02, gradient=.02, seed=1, **options)
    found = read_codes(drawn, **options)
    assert list(found) == ["gender", "age", "race"] and found.equals(labels[["gender", "age", "race"]].reset_index(drop=True))
    assert read_codes(drawn + .5, **options).equals(found)  # brightness is no code
    with pytest.raises(ValueError, match=r"must have shape \(N, size, size, 3\)"): read_codes(drawn[:, :30])
