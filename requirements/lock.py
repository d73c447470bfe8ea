"Compiles lock.txt from settings.ini: the core, the extras named in lock_extras without lock_omits, and lock_adds."
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

here = Path(__file__).parent


def wanted(settings=here.parent / "settings.ini"):
    "The requirements that the lock must cover, in order, each once."
    config = ConfigParser(delimiters=["="])
    config.read(settings, encoding="utf-8")
    cfg = config["DEFAULT"]
    keys = ["requirements", *(f"{extra}_requirements" for extra in cfg["lock_extras"].split()), "lock_adds"]
    items = [line.strip() for key in keys for line in cfg[key].splitlines() if line.strip()]
    return [item for item in dict.fromkeys(items) if re.match(r"[\w.-]+", item)[0] not in cfg["lock_omits"].split()], cfg["min_python"]


def compile_lock(uv):
    "Writes lock.txt: one set of versions for every supported Python, with hashes, naming no index and no machine."
    items, python = wanted()
    subprocess.run([uv, "pip", "compile", "-", "-o", here / "lock.txt", "-q", "--universal", "--python-version", python, "--generate-hashes",
                    "--fork-strategy", "fewest", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--upgrade",
                    "--custom-compile-command", "make lock"], input="\n".join(items), text=True, check=True)


if __name__ == "__main__":
    compile_lock(sys.argv[1])
