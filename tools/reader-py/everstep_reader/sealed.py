"""Sealed JSON (page 02), and one way to check fields, wherever they come from."""

import json
import math
import re
from collections import Counter

from blake3 import blake3

from .objects import known, limit, require
from .tables import JSON_DEPTH, SEALED, TEXT, U64

SEAL = re.compile(rb',"blake3":"([0-9a-f]{64})"\}\n')
BRACKETS = re.compile(rb'"(?:[^"\\]+|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def read(store, key, rule):
    """The fields of an object whose seal is right, and that says what its rule asks for."""
    data = store.read(key, SEALED)
    seal = SEAL.fullmatch(data[-78:])
    require(seal and blake3(data[:-78]).hexdigest().encode() == seal[1], key, "its seal is missing or wrong")
    fields = parse(key, data[:-78] + b"}")
    require(fields, key, "it has no field besides the seal")
    check(key, "it", fields, rule)
    return fields


class Fields(dict):
    """A JSON object; `repeated` has the names that stood in it more than once."""

    def __init__(self, pairs):
        super().__init__(pairs)
        self.repeated = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}


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


def check(key, at, value, rule):
    """Refuses a value that its rule does not allow.

    A rule is {field: rule} for an object, where `field?` may be absent; [rule, most] for a list; a range for
    a number; the most bytes of a text, or its pattern; or a tuple of the values that this version knows."""
    if isinstance(rule, dict):
        require(isinstance(value, dict), key, f"{at} is not an object")
        for name, inner in rule.items():
            field = name.rstrip("?")
            require(field not in getattr(value, "repeated", ()), key, f"{field} of {at} is there twice")
            require(field in value or field != name, key, f"{field} of {at} is missing")
            if field in value:
                check(key, f"{field} of {at}", value[field], inner)
    elif isinstance(rule, list):
        require(isinstance(value, list), key, f"{at} is not a list")
        limit(len(value), rule[1], key, f"items of {at}")
        for item in value:
            check(key, at, item, rule[0])
    elif isinstance(rule, tuple):
        check(key, at, value, U64 if isinstance(rule[0], int) else TEXT)
        known(value in rule, key, f"{str(value)[:80]!r} as {at}")
    elif isinstance(rule, range):
        fits = type(value) is int and (value in rule or value >= rule.stop)
        require(fits, key, f"{at} cannot be {str(value)[:80]!r}")
        limit(value, rule.stop - 1, key, at)
    else:
        fits = isinstance(value, str) and (isinstance(rule, int) or re.fullmatch(rule, value))
        require(fits, key, f"{at} cannot be {str(value)[:80]!r}")
        limit(len(value.encode()), rule if isinstance(rule, int) else TEXT, key, f"bytes of {at}")
