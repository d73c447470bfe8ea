"One at a time: the lock that keeps two processes from losing each other's lines."
import json
import subprocess
import sys
import types

import pytest

from fairical_nb.files import alone, read_json, write_json

ADD = """
import sys
from fairical_nb.files import alone, read_json, write_json
path, name = sys.argv[1:]
for k in range(40):
    with alone(path): write_json(path, read_json(path) | {f"{name}{k}": k}, backup=False)
"""


def test_no_line_is_lost_between_processes(tmp_path):
    path = tmp_path / "runs.json"
    write_json(path, {})
    others = [subprocess.Popen([sys.executable, "-c", ADD, str(path), name]) for name in "abc"]
    assert [p.wait(60) for p in others] == [0, 0, 0]
    assert read_json(path) == {f"{name}{k}": k for name in "abc" for k in range(40)}


def test_who_does_not_wait_is_refused_while_another_process_is_inside_and_not_when_it_is_killed(tmp_path):
    path = tmp_path / "new" / "runs.json"
    hold = f"from fairical_nb.files import alone\nimport time\nwith alone({str(path)!r}):\n    print('in', flush=True)\n    time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "in\n"
    with pytest.raises(BlockingIOError):
        with alone(path, wait=False): pass
    other.kill()
    other.wait()
    with alone(path, wait=False): path.write_text(json.dumps({}))
    assert read_json(path) == {}


class Bytes(types.ModuleType):
    "A stand-in for Windows' msvcrt: a byte locked by somebody else for the first `busy` tries."
    LK_NBLCK = 2

    def __init__(self, busy):
        super().__init__("msvcrt")
        self.busy, self.asked = busy, 0

    def locking(self, fd, mode, n):
        assert (isinstance(fd, int), mode, n) == (True, self.LK_NBLCK, 1)
        self.asked += 1
        if self.asked <= self.busy: raise OSError(13, "Permission denied")


@pytest.mark.parametrize("busy, wait", [(0, True), (0, False), (3, True), (3, False)])
def test_without_fcntl_a_byte_is_locked(tmp_path, monkeypatch, busy, wait):
    theirs = Bytes(busy)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", theirs)
    if busy and not wait:
        with pytest.raises(BlockingIOError):
            with alone(tmp_path / "x", wait=wait): pass
    else:
        with alone(tmp_path / "x", wait=wait): assert theirs.asked == busy + 1


def test_what_posix_alone_has_is_not_needed_to_import_anything():
    "Windows has neither fcntl nor resource."
    code = "import sys, importlib, pkgutil\nsys.modules['fcntl'] = sys.modules['resource'] = None\nimport fairical_nb\nfor n in ('files', 'reproduction', 'cli', 'albums', 'study'): importlib.import_module(f'fairical_nb.{n}')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if "No module named 'torch'" in done.stderr: pytest.skip("needs torch")
    assert done.returncode == 0, done.stderr
