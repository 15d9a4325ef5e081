"""What the reader says of repositories that another program wrote, from the specification alone."""

import tempfile
import unittest

from cases import CASES
from everstep_reader import cli
from everstep_reader.errors import ReaderError
from everstep_reader.repository import Repository
from forge import Forge

VERDICTS = {0: "fine", 1: "damaged", 5: "unsupported"}


class Forged(unittest.TestCase):
    def test_every_case_is_judged_as_the_specification_says(self):
        for name, stage, change, verdict in CASES:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                changed = []
                Forge(folder, lambda at, made: changed.append(at) or change(made) if at == stage else made).repository()
                self.assertTrue(changed, "the stage does not exist")
                try:
                    found, status = cli.verify(Repository(folder), None)
                except ReaderError as error:
                    found, status = error, error.status
                self.assertEqual(VERDICTS[status], verdict, found)


if __name__ == "__main__":
    unittest.main()
