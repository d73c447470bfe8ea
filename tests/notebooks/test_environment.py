"requirements/environment.sh, driven by stand-ins for Python that write down what they are asked to do."
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/sh
# a stand-in for Python VERSION: makes an environment whose python is this file, and logs what pip should install
case "$*" in
    *'print("%d.%d"'*) echo VERSION ;;
    *sys.exit*) [ VERSION != 3.8 ] ;;
    *"import venv"*) VENV ;;
    "-m venv"*) echo venv >> LOG; mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    "-m pip"*) echo "$*" >> LOG; case "$*" in *"${FAIL:-no such step}"*) echo "ERROR: no route" >&2; exit 1 ;; esac ;;
    -V) echo Python VERSION.1 ;;
esac
"""


class Checkout:
    "A copy of the files that the set-up reads, and a log of what it did."

    def __init__(self, folder):
        self.folder, self.log = folder / "checkout", folder / "log"
        (self.folder / "requirements").mkdir(parents=True)
        for name in ("settings.ini", "setup.py", "pyproject.toml", "requirements/environment.sh", "requirements/lock.txt", "requirements/lock-light.txt"):
            shutil.copy2(ROOT / name, self.folder / name)

    def python(self, version="3.12", venv="true", name="python"):
        path = self.log.parent / name
        path.write_text(PYTHON.replace("VERSION", version).replace("LOG", f"'{self.log}'").replace("VENV", venv))
        path.chmod(0o755)
        return path

    def set_up(self, *args, python=None, **env):
        "Runs the set-up: exit status, message, and what pip and venv were asked to do."
        self.log.write_text("")
        env = {"PATH": "/usr/bin:/bin", "PYTHON": str(python or self.python())} | env
        done = subprocess.run(["sh", "requirements/environment.sh", *args], cwd=self.folder, env=env, capture_output=True, text=True)
        steps = [line.split("--no-input ")[-1] for line in self.log.read_text().splitlines()]
        return done.returncode, done.stderr, steps


PACKAGES = "--require-hashes -r requirements/lock.txt"
LIGHT = "--require-hashes -r requirements/lock-light.txt"
PROJECT = "--no-deps --no-build-isolation -e ."


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_first_call_sets_up_and_second_does_nothing(checkout):
    assert checkout.set_up()[::2] == (0, ["venv", PACKAGES, PROJECT])
    assert checkout.set_up() == (0, "", [])


def test_a_changed_lock_starts_anew_and_changed_settings_reinstall_the_project(checkout):
    checkout.set_up()
    with (checkout.folder / "settings.ini").open("a") as f:
        f.write("\nx = 1\n")
    assert checkout.set_up() == (0, "", [PROJECT])
    with (checkout.folder / "requirements" / "lock.txt").open("a") as f:
        f.write("# newer\n")
    assert checkout.set_up()[::2] == (0, ["venv", PACKAGES, PROJECT])


def test_a_light_environment_becomes_full_when_asked_and_a_full_one_serves_as_light(checkout):
    assert checkout.set_up(LIGHT="1")[::2] == (0, ["venv", LIGHT, PROJECT])
    assert checkout.set_up(LIGHT="1") == (0, "", [])
    (checkout.folder / ".venv" / "mine").touch()
    status, message, steps = checkout.set_up()
    assert (status, steps) == (0, [PACKAGES, PROJECT]) and "Adding the packages of requirements/lock.txt" in message and (checkout.folder / ".venv" / "mine").exists()
    assert checkout.set_up(LIGHT="1") == (0, "", [])


def test_a_light_environment_that_is_not_whole_starts_anew(checkout):
    checkout.set_up(LIGHT="1")
    (checkout.folder / ".venv" / "bin" / "python").unlink()
    assert checkout.set_up()[::2] == (0, ["venv", PACKAGES, PROJECT])


def test_a_full_installation_that_fails_on_a_light_one_starts_anew(checkout):
    checkout.set_up(LIGHT="1")
    assert checkout.set_up(FAIL="require-hashes")[0] == 1
    assert checkout.set_up()[::2] == (0, ["venv", PACKAGES, PROJECT])


def test_a_moved_checkout_is_set_up_anew(checkout):
    checkout.set_up()
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    assert checkout.set_up()[::2] == (0, ["venv", PACKAGES, PROJECT])


def test_a_package_that_cannot_be_had(checkout):
    status, message, steps = checkout.set_up(FAIL="require-hashes")
    assert status == 1 and steps == ["venv", PACKAGES]
    last = message.splitlines()[-1]
    assert "could not be installed" in last and "PIP_INDEX_URL" in last and "run the same command again" in last and "ERROR: no route" in message


def test_a_half_made_environment_is_not_taken_for_finished(checkout):
    checkout.set_up(FAIL="require-hashes")
    (checkout.folder / ".venv" / "half").touch()
    assert checkout.set_up()[::2] == (0, ["venv", PACKAGES, PROJECT])
    assert not (checkout.folder / ".venv" / "half").exists()


def test_a_failed_install_of_the_project_is_tried_again_alone(checkout):
    assert checkout.set_up(FAIL="-e .")[0] == 1
    assert checkout.set_up() == (0, "", [PROJECT])


def test_the_environment_is_never_made_from_itself(checkout):
    checkout.set_up(FAIL="require-hashes")
    half = checkout.folder / ".venv" / "bin"
    shutil.copy2(half / "python", half / "python3")
    checkout.python("3.13", name="python3")
    status, message, steps = checkout.set_up(python=" ", PYTHON="", PATH=f"{half}:{checkout.log.parent}:/usr/bin:/bin")
    assert (status, steps) == (0, ["venv", PACKAGES, PROJECT]) and "3.13" in message


def test_a_broken_environment_is_made_anew(checkout):
    checkout.set_up()
    (checkout.folder / ".venv" / "bin" / "python").unlink()
    assert checkout.set_up()[::2] == (0, ["venv", PACKAGES, PROJECT])


def test_an_environment_of_the_users_own_is_filled_not_deleted(checkout):
    bin = checkout.folder / ".venv" / "bin"
    bin.mkdir(parents=True)
    shutil.copy2(checkout.python(), bin / "python")
    (bin / "mine").touch()
    assert checkout.set_up()[::2] == (0, [PACKAGES, PROJECT]) and (bin / "mine").exists()
    shutil.copy2(checkout.python("3.8"), bin / "python")
    (bin.parent / ".packages").unlink()
    status, message, steps = checkout.set_up()
    assert status == 1 and steps == [] and "move it away" in message and (bin / "mine").exists()


@pytest.mark.parametrize("version, venv, says", [("3.8", "true", "is Python 3.8"), ("3.12", "false", "install python3-venv")])
def test_a_python_that_does_not_fit(checkout, version, venv, says):
    status, message, steps = checkout.set_up(python=checkout.python(version, venv))
    assert status == 1 and steps == [] and not (checkout.folder / ".venv").exists()
    assert len(message.splitlines()) == 1 and says in message and "PYTHON=/path/to/python3.11" in message


def test_no_python_at_all(checkout):
    status, message, steps = checkout.set_up(python="no-such-python")
    assert status == 1 and len(message.splitlines()) == 1 and "no-such-python does not run" in message and "Install one" in message


def test_the_first_fitting_python_is_taken(checkout):
    checkout.python("3.8", name="python3"), checkout.python("3.12", name="python3.12"), checkout.python("3.11", name="python3.11")
    status, message, _ = checkout.set_up(python=" ", PYTHON="", PATH=f"{checkout.log.parent}:/usr/bin:/bin")
    assert status == 0 and "3.12" in message


def test_an_extra_comes_on_top_once(checkout):
    checkout.set_up()
    assert checkout.set_up("lab")[::2] == (0, ["--no-build-isolation -e .[lab]"])
    assert checkout.set_up("lab") == (0, "", [])


def test_ci_runs_make_test():
    path = ROOT / ".ci" / "run"
    assert path.stat().st_mode & 0o111 and "exec make test" in path.read_text()
