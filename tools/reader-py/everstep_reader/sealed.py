"""Sealed JSON (page 02), and tables of what fields must be."""

import json
import math
import re
from collections import Counter
from itertools import pairwise

from blake3 import blake3

from . import keys, limits
from .errors import known, limit, require

SEAL = re.compile(rb',"blake3":"([0-9a-f]{64})"\}\n')
BRACKETS = re.compile(rb'"(?:[^"\\]+|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


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
        require(depth <= limits.JSON_DEPTH, key, f"its JSON nests deeper than {limits.JSON_DEPTH}")
    try:
        value = json.loads(
            text.decode(), object_pairs_hook=Fields, parse_int=number, parse_float=number, parse_constant=number
        )
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, OverflowError) as error:
        require(False, key, f"it is not JSON: {error}")
    return value


def number(digits):
    """A number of JSON, which has to be in the range of doubles."""
    if not math.isfinite(float(digits)):
        raise ValueError(f"{digits[:40]} is out of range")
    return int(digits) if digits.lstrip("-").isdecimal() else float(digits)


def unseal(key, data):
    """The fields of an object whose seal is right."""
    seal = SEAL.fullmatch(data[-78:])
    require(seal and blake3(data[:-78]).hexdigest().encode() == seal[1], key, "its seal is missing or does not fit")
    fields = parse(key, data[:-78] + b"}")
    require(fields, key, "it has no field besides the seal")
    return fields


def read(store, key, magic, table):
    """Reads an object; checks its seal, then magic, version and the fields of the table."""
    fields = unseal(key, store.read(key, limits.SEALED))
    check(key, "", fields, {"magic": lambda found: found == magic})
    check_version(key, fields)
    check(key, "", fields, table)
    return fields


def check_version(key, fields):
    check(key, "", fields, {"version": integer})
    known(fields["version"] == 0, key, f"format version {fields['version']}")


def check(key, path, value, rule):
    """A rule is a function that says yes, a table of fields (`?`: may be absent), or a list of a rule and a limit."""
    if isinstance(rule, dict):
        require(isinstance(value, Fields), key, f"{path or 'it'} is not a JSON object")
        for name, inner in rule.items():
            plain, at = name.rstrip("?"), f"{path}.{name}".strip(".?")
            require(plain not in value.repeated, key, f"field {at} is repeated")
            require(plain in value or plain != name, key, f"field {at} is missing")
            if plain in value:
                check(key, at, value[plain], inner)
    elif isinstance(rule, list):
        require(isinstance(value, list), key, f"{path} is not a list")
        limit(len(value), rule[1], key, path)
        for item in value:
            check(key, path, item, rule[0])
    else:
        require(rule(value), key, f"{path} cannot be {str(value)[:80]!r}")


def text(value):
    return isinstance(value, str)


def texts(value):
    return isinstance(value, list) and all(map(text, value))


def text_to(most):
    return lambda value: text(value) and len(value.encode()) <= most


def matching(pattern):
    return lambda value: text(value) and re.fullmatch(pattern, value, re.ASCII) is not None


def integer(value):
    return type(value) is int and 0 <= value < 2**64


def between(low, high):
    return lambda value: integer(value) and low <= value <= high


def ascending(rule):
    """A list of what the rule allows, ascending, each once."""
    return lambda value: (
        isinstance(value, list) and all(map(rule, value)) and all(left < right for left, right in pairwise(value))
    )


CHOSEN, RUN, ID, HASH = map(matching, (keys.CHOSEN, keys.RUN, keys.ID, keys.HASH))
ORDINAL = between(1, limits.ORDINAL)
REQUIRES = {f"{operation}?": texts for operation in ("read", "write", "gc")}
REFERENCE = {"run": RUN, "ordinal": ORDINAL, "attempt": ID}
