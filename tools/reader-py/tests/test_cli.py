"""The command line: what it prints, and its exit status."""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from forge import Forge

V1 = Path(__file__).parents[3] / "fixtures" / "v1"
HISTORY, OBJECTS = V1 / "history" / "repository", V1 / "objects" / "repository"


def run(*arguments):
    told = subprocess.run([sys.executable, "-m", "everstep_checker", *map(str, arguments)], capture_output=True, text=True)
    return told.returncode, json.loads(told.stdout) if told.stdout else None


class CommandLine(unittest.TestCase):
    def test_ls_tells_what_became_of_every_attempt(self):
        status, listed = run("ls", HISTORY, "first")
        self.assertEqual(status, 0)
        self.assertEqual(list(listed), [f"first@ordinal={ordinal}" for ordinal in range(1, 6)])
        self.assertEqual([one.get("kind", one.get("step")) for one in listed.values()], ["NotFound", 10, "Expired", 10, 30])

    def test_load_finds_the_newest_checkpoint_and_all_ranks(self):
        status, loaded = run("load", OBJECTS, "objects")
        self.assertEqual((status, list(loaded)), (0, ["objects@ordinal=2"]))
        names = [(one["name"], one["rank"]) for one in loaded["objects@ordinal=2"]]
        self.assertEqual(names, [("all", None), ("empty", None), ("rng", 0), ("rng", 1), ("rng", 2)])

    def test_a_pin_is_listed_and_loads_after_what_it_pins_was_swept(self):
        with tempfile.TemporaryDirectory() as folder:
            forge = Forge(folder)
            forge.repository()
            digests = run("load", folder, "r@ordinal=2")[1]["r@ordinal=2"]
            forge.pin()
            forge.marker("r", 2)
            forge.sweep()
            self.assertEqual(run("ls", folder, "_pins")[1]["_pins@ordinal=2"]["pin"]["name"], "best")
            self.assertEqual(run("load", folder, "pin:best"), (0, {"_pins@ordinal=2": digests}))
            self.assertEqual(run("verify", folder, "pin:best")[0], 0)
            self.assertEqual(run("load", folder, "pin:other")[0], 4)
            forge.marker("_pins", 2)
            self.assertEqual(run("load", folder, "pin:best")[0], 4)

    def test_a_link_in_the_place_of_all_runs_is_damage(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(HISTORY, folder, dirs_exist_ok=True)
            Path(folder, "runs").rename(Path(folder, "elsewhere"))
            Path(folder, "runs").symlink_to("elsewhere")
            status, found = run("verify", folder)
            self.assertEqual((status, [one["object"] for one in found["findings"]]), (1, ["runs"]))

    def test_the_exit_status_tells_usage_from_absence_and_damage(self):
        self.assertEqual(run("verify", HISTORY), (0, {"findings": [], "strays": []}))
        self.assertEqual(run("frobnicate", HISTORY)[0], 2)
        for reference in ("first@ordinal=3", "first@ordinal=1", "first@ordinal=9", "nobody"):
            self.assertEqual(run("load", HISTORY, reference)[0], 4, reference)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run("ls", folder)[0], 1)
            shutil.copytree(HISTORY, folder, dirs_exist_ok=True)
            pack = next(Path(folder, "packs").glob("*/778b1fb62c5e28a3271e22e41985ca92/*"))
            data = pack.read_bytes()
            pack.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            strays = ["packs/00/" + "a" * 32 + "/0-" + "b" * 64, "runs/first/intents/7", "x"]
            for key in strays:
                Path(folder, key).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, key).touch()
            status, judged = run("verify", folder)
            self.assertEqual(judged["strays"], strays)
            self.assertEqual((status, judged["findings"][0]["object"]), (1, pack.relative_to(folder).as_posix()))
            self.assertEqual(run("verify", folder, "first@ordinal=2")[0], 0)
            self.assertEqual(run("load", folder, "first")[0], 1)
            pack.unlink()
            self.assertEqual(run("load", folder, "first")[1]["kind"], "Missing")


if __name__ == "__main__":
    unittest.main()
