"""The vectors in fixtures/vectors, which the other reader has to meet as well."""

import json
import struct
import tempfile
import unittest
from pathlib import Path

import everstep_values as values
from blake3 import blake3
from everstep_checker import keys, packs
from everstep_reader import objects, sealed, tensors
from everstep_reader.objects import Corrupt, TooLarge, Unsupported

VECTORS = Path(__file__).parents[3] / "fixtures" / "vectors"
REFUSALS = {"corrupt": Corrupt, "too_large": TooLarge, "unsupported": Unsupported}


def vectors(name):
    return json.loads((VECTORS / f"{name}.json").read_text())


def described(value):
    """A value in the words of values.json."""
    if value is None:
        return "none"
    if isinstance(value, values.Map):
        return {"map": [[described(key), described(inner)] for key, inner in value]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [described(inner) for inner in value]}
    if isinstance(value, float):
        return {"float": struct.pack(">d", value).hex()}
    words = {bool: ("bool", bool), int: ("int", hex), str: ("text", str), bytes: ("bytes", bytes.hex)}
    word, spell = words[type(value)]
    return {word: spell(value)}


class Vectors(unittest.TestCase):
    def refused(self, case, function, *arguments):
        with self.subTest(case["name"]):
            with self.assertRaises(REFUSALS[case["refusal"]]) as caught:
                function(*arguments)
            self.assertIs(type(caught.exception), REFUSALS[case["refusal"]], caught.exception)

    def test_chunk_ids_and_pack_keys(self):
        for case in vectors("ids")["chunks"]:
            self.assertEqual(blake3(bytes.fromhex(case["raw"])).hexdigest(), case["id"])
        for case in vectors("ids")["pack_keys"]:
            self.assertEqual(objects.pack_key(case["attempt"], case["rank"], case["pack"]), case["key"])
            self.assertTrue(keys.is_known(case["key"]))

    def test_codecs(self):
        for case in vectors("codecs")["decodes"]:
            raw, stored = bytes.fromhex(case["raw"]), bytes.fromhex(case["stored"])
            self.assertEqual(tensors.decode("", case["codec"], stored, len(raw)), raw, case["name"])
        for case in vectors("codecs")["refused"]:
            self.refused(case, tensors.decode, "", case["codec"], bytes.fromhex(case["stored"]), case["raw_len"])

    def test_values(self):
        for case in vectors("values")["values"]:
            self.assertEqual(described(values.decode("", bytes.fromhex(case["bytes"]))), case["value"], case["name"])
        for case in vectors("values")["refused"]:
            self.refused(case, values.decode, "", bytes.fromhex(case["bytes"]))

    def test_sealed(self):
        with tempfile.TemporaryDirectory() as folder:
            path, store = Path(folder, "object"), objects.Directory(folder)
            for case in vectors("sealed")["sealed"]:
                path.write_bytes(case["sealed"].encode())
                self.assertEqual(sealed.read(store, "object", {}), json.loads(case["body"]))
            for case in vectors("sealed")["refused"]:
                path.write_bytes(case["text"].encode())
                self.refused(case, sealed.read, store, "object", {})

    def test_packs(self):
        for case in vectors("packs")["packs"]:
            data = bytes.fromhex(case["bytes"])
            rows = packs.read_table("", data, case["attempt"], case["rank"], case["id"])
            self.assertEqual(blake3(data[: rows[0]["offset"]]).hexdigest(), case["id"])
            for row, chunk in zip(rows, case["chunks"], strict=True):
                stored = data[row["offset"] : row["offset"] + row["stored_len"]]
                self.assertEqual((stored.hex(), row["codec"]), (chunk["stored"], chunk["codec"]))
                self.assertEqual(packs.crc32c(stored), row["crc"])
                self.assertEqual(tensors.verified("", row["chunk"], row["codec"], stored, row["raw_len"]).hex(), chunk["raw"])
        for case in vectors("packs")["refused"]:
            front = bytes.fromhex(case["front"])
            attempt, rank = front[24:40].hex(), int.from_bytes(front[20:24], "little")
            self.refused(case, packs.read_table, "", front, attempt, rank, case["id"])

    def test_dtypes(self):
        for case in vectors("dtypes")["dtypes"]:
            self.assertEqual(tensors.BITS[case["name"]], case["bits"])
        self.assertEqual(len(tensors.BITS), len(vectors("dtypes")["dtypes"]))
        for case in vectors("dtypes")["byte_ranges"]:
            if case["start"] + case["len"] > case["total"]:
                self.assertIsNone(case["bytes"])
                continue
            bits = tensors.BITS[case["dtype"]]
            box = tensors.whole_bytes(bits, [case["total"]], [case["start"]], [case["len"]])
            size = max(1, bits // 8)
            found = box and [box[1][0] * size, (box[1][0] + box[2][0]) * size]
            self.assertEqual(found, case["bytes"], case)


if __name__ == "__main__":
    unittest.main()
