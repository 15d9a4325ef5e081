"""Sealed JSON (page 02)."""

import json
import math
import re
from collections import Counter

from blake3 import blake3

from .errors import require
from .rules import check
from .tables import JSON_DEPTH, SEALED

SEAL = re.compile(rb',"blake3":"([0-9a-f]{64})"\}\n')
BRACKETS = re.compile(rb'"(?:[^"\\]+|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class Fields(dict):
    """A JSON object; `repeated` has the names that stood in it more than once."""

    def __init__(self, pairs):
        super().__init__(pairs)
        self.repeated = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}


def read(store, key, rule):
    """The fields of an object whose seal is right, and that says what its rule asks for."""
    fields = unseal(key, store.read(key, SEALED))
    check(key, "it", fields, rule)
    return fields


def unseal(key, data):
    seal = SEAL.fullmatch(data[-78:])
    require(seal and blake3(data[:-78]).hexdigest().encode() == seal[1], key, "its seal is missing or does not fit")
    fields = parse(key, data[:-78] + b"}")
    require(fields, key, "it has no field besides the seal")
    return fields


def parse(key, text):
    """JSON as the format allows it: of bounded depth, without NaN and lone surrogates."""
    depth = 0
    for mark in BRACKETS.finditer(text):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(mark[0], 0)
        require(depth <= JSON_DEPTH, key, f"its JSON nests deeper than {JSON_DEPTH}")
    try:
        numbers = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), number)
        value = json.loads(text.decode(), object_pairs_hook=Fields, **numbers)
        json.dumps(value, ensure_ascii=False).encode()  # which half a surrogate pair cannot be
    except (ValueError, OverflowError) as error:
        require(False, key, f"it is not JSON: {error}")
    return value


def number(digits):
    """A number of JSON, which has to be in the range of doubles."""
    if not math.isfinite(float(digits)):
        raise ValueError(f"{digits[:40]} is out of range")
    return int(digits) if digits.lstrip("-").isdecimal() else float(digits)
