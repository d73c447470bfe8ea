"A lesson as its reader meets it: opened in JupyterLab, all cells run, a slider moved with the keyboard, and a number that follows."
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

LESSON = Path(__file__).parents[2] / "nbs" / "tutorials" / "lesson_1_radar.ipynb"
PATIENCE = 240  # seconds for any one thing on a busy machine; all of it takes about 20 on a free one
TOKEN = "reader"
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
SETTINGS = {"notebook-extension/tracker": {"windowingMode": "none"},  # every cell is in the page, not only those in sight
            "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False}}


def missing():
    "What this test lacks, in words; empty: nothing."
    lacks = [f"the package {name} (pip install 'fairical_nb[{extra}]')" for name, extra in (("playwright", "browser"), ("jupyterlab", "lab"), ("ipywidgets", "teach")) if find_spec(name) is None]
    return "; ".join(lacks + ([] if chromium() else ["the browser chromium (Debian: apt-get install chromium)"]))


def chromium():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


pytestmark = pytest.mark.skipif(bool(missing()), reason=f"a lesson is tried in a browser where there is one; missing: {missing()}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def surroundings(folder):
    "Settings and folders of JupyterLab's own, so that nobody's home is read or written."
    for name, values in SETTINGS.items():
        path = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    own = {f"JUPYTER_{k}_DIR": str(folder / k.lower()) for k in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"), "IPYTHONDIR": str(folder / "ipython")}
    return {k: v for k, v in os.environ.items() if k != "FAIRICAL_NB_STILL"} | own | {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def lab(tmp_path):
    "The address of a copy of the lesson in a JupyterLab that runs while the test does."
    work, port = tmp_path / "work", free_port()
    work.mkdir()
    shutil.copy(LESSON, work)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={work}"]
    with open(tmp_path / "server.log", "w") as log:
        server = subprocess.Popen(command, env=surroundings(tmp_path), cwd=work, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(f"http://127.0.0.1:{port}/api/status?token={TOKEN}", server, tmp_path / "server.log")
        yield f"http://127.0.0.1:{port}/lab/tree/{LESSON.name}?token={TOKEN}"
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()


def wait_for(address, server, log):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if server.poll() is not None:
            pytest.fail(f"JupyterLab ended before it answered:\n{log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(.5)
    pytest.fail(f"JupyterLab did not answer in {PATIENCE} s:\n{log.read_text()[-2000:]}")


@pytest.fixture
def page(lab):
    "The lesson in the browser, its kernel at rest."
    from playwright.sync_api import sync_playwright
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium(), args=QUIET)
        try:
            page = browser.new_page(viewport={"width": 1300, "height": 1000})
            page.set_default_timeout(1000 * PATIENCE)
            page.goto(lab)
            at_rest(page)
            yield page
        finally:
            browser.close()


def at_rest(page):
    page.get_by_text(re.compile(r"\| Idle$")).first.wait_for()


def prompts(page):
    return page.locator(".jp-CodeCell .jp-InputArea-prompt").all_inner_texts()


def said(page):
    "The sentence of the live panel, not that of the still picture under it."
    return page.locator(".jupyter-widgets [role=status]").first.inner_text()


def test_a_lesson_runs_in_jupyterlab_and_a_slider_moved_by_keyboard_changes_a_number(page):
    cells = sum(c["cell_type"] == "code" for c in json.loads(LESSON.read_text(encoding="utf-8"))["cells"])
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(f"[...document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')].filter(e => /^\\[\\d+\\]:$/.test(e.innerText.trim())).length == {cells}")
    at_rest(page)
    assert len(prompts(page)) == cells and page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
    assert page.get_by_text("your turn").count() >= 2, "exercises wait for their answers"

    handle = page.locator(".jupyter-widgets [role=slider]").first
    handle.wait_for()
    before, where = said(page), float(handle.get_attribute("aria-valuenow"))
    handle.focus()
    handle.press("ArrowLeft")
    page.wait_for_function("before => document.querySelector('.jupyter-widgets [role=status]').innerText != before", arg=before)
    assert float(handle.get_attribute("aria-valuenow")) < where
    assert re.findall(r"\d\.\d+", said(page)) != re.findall(r"\d\.\d+", before)
    label = page.locator(".jupyter-widgets .widget-label").first.inner_text()
    assert "(0 to 1)" in label, "each slider says what it is"
    assert page.locator(".jp-OutputArea-output figure img[alt]").count() >= 2, "a picture with words stands there in any case"
