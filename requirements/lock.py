"Compiles lock.txt and its part lock-light.txt from settings.ini: the core, the extras named in lock_extras without lock_omits, and lock_adds."
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

here = Path(__file__).parent


def wanted(settings=here.parent / "settings.ini", *, light=False):
    "The requirements that a lock must cover, in order, each once; `light` leaves the extras and packages of lock_heavy out."
    config = ConfigParser(delimiters=["="])
    config.read(settings, encoding="utf-8")
    cfg = config["DEFAULT"]
    heavy = cfg["lock_heavy"].split()
    extras = [extra for extra in cfg["lock_extras"].split() if not (light and extra in heavy)]
    lines = lambda key: [line.strip() for line in cfg[key].splitlines() if line.strip()]
    name = lambda item: re.match(r"[\w.-]+", item)[0]
    out = [*cfg["lock_omits"].split(), *([*heavy, *(name(i) for e in heavy if f"{e}_requirements" in cfg for i in lines(f"{e}_requirements"))] if light else [])]
    items = [item for key in ("requirements", *(f"{extra}_requirements" for extra in extras), "lock_adds") for item in lines(key)]
    return [item for item in dict.fromkeys(items) if name(item) not in out], cfg["min_python"]


def compile_lock(uv, out, items, python, *given):
    "Writes one lock: one set of versions for every supported Python, with hashes, naming no index and no machine."
    subprocess.run([uv, "pip", "compile", "-", "-o", out, "-q", "--universal", "--python-version", python, "--generate-hashes",
                    "--fork-strategy", "fewest", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links",
                    "--custom-compile-command", "make lock", *given], input="\n".join(items), text=True, check=True)


if __name__ == "__main__":
    compile_lock(sys.argv[1], here / "lock.txt", *wanted(), "--upgrade")
    compile_lock(sys.argv[1], here / "lock-light.txt", *wanted(light=True), "--constraint", here / "lock.txt")
