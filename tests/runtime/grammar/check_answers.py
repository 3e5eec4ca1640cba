#!/usr/bin/env python3
"""Has jsonschema judge what a model says under each of the bounded schemas.

Usage: check_answers.py STRATA MODEL [TEMPERATURE [ARGS...]], such as
  check_answers.py build/release/bin/strata smollm2.gguf 5
  check_answers.py build/release/bin/strata "" 5 --coordinator 127.0.0.1:7600 --token FILE
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import jsonschema

DATA = pathlib.Path(__file__).parents[2] / "data/grammar/bounded_schemas.json"


def main():
    strata, model = sys.argv[1], sys.argv[2]
    temperature = sys.argv[3] if len(sys.argv) > 3 else "5"
    ended = wrong = 0
    schemas = json.loads(DATA.read_text())
    for number, schema in enumerate(schemas):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(schema, file)
            file.flush()
            command = [strata, "run", *(["-m", model] if model else []), "-p", "Give me an example.", "-n", "120",
                       "--temperature", temperature, "--top-p", "1", "--seed", str(number), "--json",
                       "--json-schema", file.name, *sys.argv[4:]]
            answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        if answer["finish_reason"] != "stop":
            continue
        ended += 1
        try:
            jsonschema.validate(json.loads(answer["text"]), schema, jsonschema.Draft202012Validator,
                                format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        except (ValueError, jsonschema.ValidationError) as error:
            wrong += 1
            print(f"{json.dumps(schema)}\n  {answer['text']!r}\n  {error}")
    print(f"{len(schemas)} schemas, {ended} answers ended by themselves, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
