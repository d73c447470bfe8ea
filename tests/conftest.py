"Settings for all tests: repeatable hypothesis runs, one thread, no model hub, pictures without a screen, and no reading of the user's own Jupyter settings."
import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["MPLBACKEND"] = "Agg"
for threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")  # two workers with two threads each spin more than they compute
os.environ["HF_HUB_OFFLINE"] = "1"
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("searching", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def root():
    "The project's folder."
    return Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def own_jupyter(tmp_path_factory):
    "Kernels started by a test write into a temporary folder, not into the user's home."
    folder = tmp_path_factory.mktemp("jupyter")
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        os.environ[name] = str(folder / name.lower())
