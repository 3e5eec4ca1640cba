#!/usr/bin/env python3
"""Makes random JSON schemas with documents, and has the Python package jsonschema judge them.

Usage: make_schema_vectors.py OUT.json [COUNT [SEED]]. tests/data/grammar/schema_vectors.tar.xz holds its
output for 500 schemas and seed 1:

  make_schema_vectors.py schema_vectors.json 500 1 && tar cJf schema_vectors.tar.xz schema_vectors.json

The output is a list of {"schema": ..., "accepted": [text, ...], "rejected": [text, ...]}. Documents are
made after the schema, then changed in one place or more, then written in several styles: any member
order, any white space, escaped or not. Left out is what docs/grammar.md says is decided otherwise.
"""
import copy
import json
import random
import sys

import jsonschema

FORMATS = {
    "date": (["2024-02-29", "1999-12-31", "2023-01-01"], ["2023-02-29", "2024-13-01", "2024-1-01", "x", ""]),
    "ipv4": (["1.2.3.4", "255.255.255.255", "0.0.0.0"], ["256.1.1.1", "1.2.3", "1.2.3.4.5", "a.b.c.d"]),
    "ipv6": (["::1", "fe80::1:2", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4"], [":::", "1:2:3", "12345::", "g::1"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000", "123e4567-e89b", "zz"]),
}
PATTERNS = [
    ("^[a-z]+$", ["abc", "z"], ["", "aB", "a1"]),
    ("[0-9]{2}", ["12", "ab34c", "123"], ["1", "a1b2", ""]),
    ("^(foo|ba[rz])$", ["foo", "bar", "baz"], ["fo", "foobar", "ba"]),
    ("^a.*z$", ["az", "abz", "a\u00e9z"], ["a", "z", "azb"]),
    ("^[A-Z]{2}-\\d{3,4}$", ["AB-123", "ZZ-0000"], ["AB-12", "ab-123", "xAB-123"]),
    ("^\\S+$", ["x", "a-b"], ["", "a b", " "]),
    ("colou?r", ["color", "my colour"], ["colr", ""]),
    ("^[^\"\\\\]*$", ["", "abc", "\u6771\u4eac"], ["a\"b", "\\"]),
    ("^[a-z_]+(\\.[a-z_]+)*$", ["a", "a.b_c.d"], [".", "a.", ""]),
    ("^x?$|^yy$", ["", "x", "yy"], ["xx", "y"]),
]
WORDS = ["", "a", "abc", "na\u00efve", "\u6771\u4eac", "a \"quote\"", "back\\slash", "line\nend", "\U0001F642",
         "tab\t", "color", "12", "foo", "AB-123", "/", "\u007f", "\u0001"]
NAMES = ["a", "b", "c", "id", "name", "na", "x-y", "\u00fc", "a b", "q\"", "type", "A", ""]


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.defs = {}

    def chance(self, p):
        return self.rng.random() < p

    def schema(self, depth):
        kinds = [self.string, self.integer, self.number, self.boolean, self.enum, self.const, self.null_or]
        if depth > 0:
            kinds += [self.object, self.object, self.object, self.array, self.array, self.any_of, self.all_of,
                      self.one_of, self.reference, self.types]
        schema = self.rng.choice(kinds)(depth)
        if self.chance(0.1) and isinstance(schema, dict):
            schema["description"] = self.rng.choice(["A \"text\" {with} \\ signs\n", "\U0001F642" * 20, "x" * 500])
        return schema

    def string(self, depth):
        schema = {"type": "string"}
        roll = self.rng.random()
        if roll < 0.3:
            low = self.rng.randint(0, 4)
            if self.chance(0.6):
                schema["minLength"] = low
            if self.chance(0.7):
                schema["maxLength"] = low + self.rng.randint(0, 5)
        elif roll < 0.6:
            schema["pattern"] = self.rng.choice(PATTERNS)[0]
            if self.chance(0.2):
                schema["maxLength"] = self.rng.randint(3, 8)
        elif roll < 0.75:
            schema["format"] = self.rng.choice(sorted(FORMATS))
        return schema

    def limits(self, schema, scale):
        low = self.rng.randint(-150, 150) / scale
        high = low + self.rng.randint(0, 300) / scale
        if scale == 1:
            low, high = int(low), int(high)
        if self.chance(0.6):
            schema[self.rng.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.6):
            schema[self.rng.choice(["maximum", "exclusiveMaximum"])] = high + 1
        return schema

    def integer(self, depth):
        schema = {"type": "integer"}
        if self.chance(0.6):
            self.limits(schema, 1)
        if self.chance(0.2):
            schema["multipleOf"] = self.rng.choice([2, 3, 5, 7, 10, 12])
        return schema

    def number(self, depth):
        schema = {"type": "number"}
        if self.chance(0.5):
            self.limits(schema, self.rng.choice([1, 2, 4, 8]))
        if self.chance(0.15):
            schema["multipleOf"] = self.rng.choice([0.5, 0.25, 2, 1.5])
        return schema

    def boolean(self, depth):
        return {"type": "boolean"}

    def null_or(self, depth):
        return {"type": ["null", self.rng.choice(["string", "integer", "boolean"])]}

    def types(self, depth):
        some = self.rng.sample(["null", "boolean", "integer", "number", "string", "array", "object"], 2)
        return {"type": some} if self.chance(0.8) else self.rng.choice([{}, True])

    def literal(self, depth):
        pick = self.rng.random()
        if pick < 0.5:
            return self.rng.choice(WORDS)
        if pick < 0.7:
            return self.rng.choice([0, 1, -7, 42, 1.5, -0.25, 100])
        if pick < 0.85 or depth == 0:
            return self.rng.choice([None, True, False])
        if self.chance(0.5):
            return [self.literal(0) for _ in range(self.rng.randint(0, 3))]
        return {n: self.literal(0) for n in self.rng.sample(NAMES, self.rng.randint(0, 3))}

    def enum(self, depth):
        values = []
        for _ in range(self.rng.randint(1, 5)):
            value = self.literal(depth)
            if value not in values:
                values.append(value)
        return {"enum": values}

    def const(self, depth):
        return {"const": self.literal(depth)}

    def object(self, depth):
        names = self.rng.sample(NAMES, self.rng.randint(0, 5))
        schema = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names}}
        if not names and self.chance(0.5):
            del schema["properties"]
        if names and self.chance(0.8):
            schema["required"] = self.rng.sample(names, self.rng.randint(0, len(names)))
        roll = self.rng.random()
        if roll < 0.5:
            schema["additionalProperties"] = False
        elif roll < 0.7:
            schema["additionalProperties"] = self.schema(depth - 1)
        if self.chance(0.15):
            schema["patternProperties"] = {self.rng.choice(["^x", "[0-9]$", "^[A-Z]+$"]): self.schema(0)}
        if self.chance(0.1):
            schema["minProperties"] = self.rng.randint(0, 2)
        if self.chance(0.1):
            schema["maxProperties"] = self.rng.randint(2, 4)
        if self.chance(0.08):
            schema["propertyNames"] = {"pattern": "^[a-z]"} if self.chance(0.5) else {"maxLength": 3}
        if len(names) > 1 and self.chance(0.1):
            schema["dependentRequired"] = {names[0]: [names[1]]}
        return schema

    def array(self, depth):
        schema = {"type": "array"}
        if self.chance(0.8):
            schema["items"] = self.schema(depth - 1)
        if self.chance(0.25):
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(self.rng.randint(1, 3))]
            if self.chance(0.4):
                schema["items"] = False
        if self.chance(0.5):
            schema["minItems"] = self.rng.randint(0, 2)
        if self.chance(0.5):
            schema["maxItems"] = self.rng.randint(2, 4)
        return schema

    def any_of(self, depth):
        schema = {"anyOf": [self.schema(depth - 1) for _ in range(self.rng.randint(1, 3))]}
        return schema

    def all_of(self, depth):
        if self.chance(0.5):
            parts = [self.object(depth - 1) for _ in range(2)]
            for part in parts:
                if part.get("additionalProperties") is False:
                    del part["additionalProperties"]
            return {"allOf": parts}
        if self.chance(0.5):
            return {"allOf": [self.integer(0), self.number(0)]}
        return {"allOf": [self.string(0), {"minLength": self.rng.randint(0, 3)}]}

    def one_of(self, depth):
        roll = self.rng.random()
        if roll < 0.35:
            kinds = self.rng.sample([self.string, self.integer, self.boolean, self.array], 2)
            return {"oneOf": [kind(depth - 1) for kind in kinds]}
        if roll < 0.6:
            return {"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]}
        if roll < 0.7:
            return {"oneOf": [{"type": "string", "maxLength": 4}, {"type": "string", "pattern": "^a"}]}
        branches = []
        for tag in self.rng.sample(["cat", "dog", "cow"], 2):
            branch = self.object(depth - 1)
            branch.setdefault("properties", {})["kind"] = {"const": tag}
            branch["required"] = branch.get("required", []) + ["kind"]
            branch.pop("propertyNames", None)
            branches.append(branch)
        return {"oneOf": branches}

    def reference(self, depth):
        name = self.rng.choice(["point", "tree", "word"])
        if name not in self.defs:
            self.defs[name] = {
                "point": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                          "required": ["x", "y"], "additionalProperties": False},
                "tree": {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {
                    "type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}, "required": ["v"],
                         "additionalProperties": False},
                "word": {"type": "string", "minLength": 1, "maxLength": 6},
            }[name]
        return {"$ref": "#/$defs/" + name}


class Writer:
    """Documents after a schema: mostly right, by construction."""

    def __init__(self, rng, root):
        self.rng = rng
        self.root = root

    def any(self, depth=1):
        pick = self.rng.random()
        if pick < 0.75 or depth == 0:
            return self.rng.choice(WORDS + [None, True, False, 0, 1, -3, 2.5, 12, 0.0, 4.0])
        if pick < 0.87:
            return [self.any(depth - 1) for _ in range(self.rng.randint(0, 3))]
        return {self.rng.choice(NAMES): self.any(depth - 1) for _ in range(self.rng.randint(0, 3))}

    def make(self, schema, depth=6):
        if schema is True or schema == {} or depth == 0:
            return self.any()
        if schema is False:
            return None
        if "$ref" in schema:
            return self.make(self.root["$defs"][schema["$ref"].split("/")[-1]], depth - 1)
        if "const" in schema:
            return copy.deepcopy(schema["const"])
        if "enum" in schema:
            return copy.deepcopy(self.rng.choice(schema["enum"]))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self.make(self.rng.choice(schema[key]), depth - 1)
        if "allOf" in schema:
            parts = [self.make(part, depth - 1) for part in schema["allOf"]]
            if all(isinstance(part, dict) for part in parts):
                return {k: v for part in parts for k, v in part.items()}
            return self.rng.choice(parts)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self.rng.choice(kind)
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else None
        maker = {"string": self.string, "integer": self.number, "number": self.number, "array": self.array,
                 "object": self.object}.get(kind)
        if maker:
            return maker(schema, kind, depth)
        return {"boolean": self.rng.random() < 0.5, "null": None}.get(kind, self.any())

    def string(self, schema, kind, depth):
        for pattern, good, _ in PATTERNS:
            if schema.get("pattern") == pattern:
                return self.rng.choice(good)
        if "format" in schema:
            return self.rng.choice(FORMATS[schema["format"]][0])
        low = schema.get("minLength", 0)
        high = schema.get("maxLength", low + 4)
        return "".join(self.rng.choice("ab\u00e9\u6771\U0001F642 \"\\\n/") for _ in range(self.rng.randint(low, high)))

    def number(self, schema, kind, depth):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -200))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 400))
        value = self.rng.uniform(low, high)
        step = schema.get("multipleOf", 1 if kind == "integer" else 0.125)
        value = round(value / step) * step
        if self.rng.random() < 0.2:
            value = self.rng.choice([low, high])
        if kind == "integer" or (value == int(value) and self.rng.random() < 0.6):
            return int(value)
        return value

    def array(self, schema, kind, depth):
        prefix = schema.get("prefixItems", [])
        low = schema.get("minItems", 0)
        size = self.rng.randint(low, max(low, schema.get("maxItems", low + 3)))
        return [self.make(prefix[i] if i < len(prefix) else schema.get("items", True), depth - 1) for i in range(size)]

    def object(self, schema, kind, depth):
        result = {}
        for name, child in schema.get("properties", {}).items():
            if name in schema.get("required", []) or self.rng.random() < 0.5:
                result[name] = self.make(child, depth - 1)
        if self.rng.random() < 0.3:
            extra = schema.get("additionalProperties", True)
            if extra is not False:
                result[self.rng.choice(NAMES + ["x1", "ZZ", "other"])] = self.make(extra, depth - 1)
        for pattern, child in schema.get("patternProperties", {}).items():
            if self.rng.random() < 0.5:
                result[{"^x": "xx", "[0-9]$": "n7", "^[A-Z]+$": "QQ"}[pattern]] = self.make(child, depth - 1)
        return result

    def change(self, value):
        """One small change somewhere inside."""
        roll = self.rng.random()
        if isinstance(value, dict) and value and roll < 0.8:
            value = dict(value)
            name = self.rng.choice(sorted(value))
            if roll < 0.25:
                del value[name]
            elif roll < 0.4:
                value[self.rng.choice(NAMES + ["zz"])] = self.any()
            else:
                value[name] = self.change(value[name])
            return value
        if isinstance(value, list) and value and roll < 0.8:
            value = list(value)
            index = self.rng.randrange(len(value))
            if roll < 0.2:
                del value[index]
            elif roll < 0.4:
                value.append(self.any())
            else:
                value[index] = self.change(value[index])
            return value
        if isinstance(value, bool) or value is None:
            return self.any()
        if isinstance(value, (int, float)) and roll < 0.8:
            return value + self.rng.choice([1, -1, 0.5, -100, 100, -value, 0.0])
        if isinstance(value, str) and roll < 0.8:
            return self.rng.choice([value + "x", value[1:], value.upper(), value + "\u00e9", "x" + value] + WORDS)
        return self.any()

    def text(self, value):
        if isinstance(value, dict) or isinstance(value, list):
            value = self.shuffled(value)
        indent = self.rng.choice([None, None, None, 2, "\t"])
        separators = self.rng.choice([None, (",", ":"), (" , ", " : ")]) if indent is None else None
        return json.dumps(value, ensure_ascii=self.rng.random() < 0.4, indent=indent, separators=separators)

    def shuffled(self, value):
        if isinstance(value, dict):
            names = list(value)
            self.rng.shuffle(names)
            return {name: self.shuffled(value[name]) for name in names}
        return [self.shuffled(v) for v in value] if isinstance(value, list) else value


def broken(text, rng):
    """No JSON any more, mostly."""
    cut = rng.randrange(len(text)) if text else 0
    return rng.choice([text[:cut], text + rng.choice(",]}x\""), text[:cut] + rng.choice(",:{[\"x") + text[cut:]])


def strict_json(text):
    def pairs(items):
        if len({name for name, _ in items}) != len(items):
            raise ValueError("a name twice")
        return dict(items)

    def refuse(word):
        raise ValueError(word)

    return json.loads(text, object_pairs_hook=pairs, parse_constant=refuse)


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    vectors = []
    while len(vectors) < count:
        maker = Maker(rng)
        schema = maker.schema(rng.choice([0, 1, 2, 2, 3]))
        if isinstance(schema, dict) and maker.defs:
            schema["$defs"] = maker.defs
        jsonschema.Draft202012Validator.check_schema(schema)
        judge = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        writer = Writer(rng, schema)
        accepted, rejected = set(), set()
        for _ in range(60):
            value = writer.make(schema)
            for _ in range(rng.choice([0, 0, 1, 1, 2])):
                value = writer.change(value)
            text = writer.text(value)
            if rng.random() < 0.1:
                text = broken(text, rng)
            try:
                value = strict_json(text)
            except ValueError:
                valid = False
            else:
                valid = judge.is_valid(value)
            (accepted if valid else rejected).add(text)
        if not accepted:
            continue
        pick = lambda texts: sorted(rng.sample(sorted(texts), min(len(texts), 8)))
        vectors.append({"schema": schema, "accepted": pick(accepted), "rejected": pick(rejected)})
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(vectors, out, ensure_ascii=True, separators=(",", ":"))
    total = sum(len(v["accepted"]) + len(v["rejected"]) for v in vectors)
    print(f"{len(vectors)} schemas, {total} documents")


if __name__ == "__main__":
    main()
