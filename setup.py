"All metadata come from settings.ini; this file only hands them to setuptools."
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = ConfigParser(delimiters=["="])
config.read(here / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]
statuses = {"1": "1 - Planning", "2": "2 - Pre-Alpha", "3": "3 - Alpha", "4": "4 - Beta", "5": "5 - Production/Stable"}


def lines(key):
    "The value of `key`, one item a line."
    return [line.strip() for line in cfg.get(key, "").splitlines() if line.strip()]


extras = {key.removesuffix("_requirements"): lines(key) for key in cfg if key.endswith("_requirements")}
extras["all"] = sorted({item for name, items in extras.items() if name != "dev" for item in items})
extras["dev"] = sorted({*extras["dev"], *extras["all"]})
readme = here / "README.md"

setup(
    name=cfg["lib_name"], version=cfg["version"], description=cfg["description"], author=cfg["author"],
    license_expression=cfg["license"], keywords=cfg["keywords"].split(), python_requires=f">={cfg['min_python']}",
    long_description=readme.read_text(encoding="utf-8") if readme.exists() else cfg["description"],
    long_description_content_type="text/markdown", packages=find_packages(include=[cfg["lib_name"] + "*"]),
    include_package_data=True, install_requires=lines("requirements"), extras_require=extras,
    entry_points={"console_scripts": lines("console_scripts"), "nbdev": [f"{cfg['lib_name']}={cfg['lib_name']}._modidx:d"]},
    classifiers=[f"Development Status :: {statuses[cfg['status']]}", f"Intended Audience :: {cfg['audience']}",
                 f"Natural Language :: {cfg['language']}", "Programming Language :: Python :: 3"],
    zip_safe=False,
)
