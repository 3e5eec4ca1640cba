#!/usr/bin/env python3
"""Renders a folder of chat templates with jinja2 and with `strata template`, and prints where they differ.

Usage: compare_templates.py STRATA FOLDER   (every *.jinja below FOLDER; needs the package jinja2)
For templates that are not ours to keep: the stored vectors of make_template_vectors.py are for the tests.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from make_template_vectors import NOW, environment

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather\nof a place", "parameters": {
    "type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Where"}, "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
        "days": {"type": ["integer", "null"]}, "at": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "number"}}}}}}}}]
CALL = {"id": "abcdef123", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "at": [{"k": 1.5}]}}}
CONVERSATIONS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "é \"q\" <b>&</b>\n"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi"},
     {"role": "user", "content": "again"}],
    [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
     {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": "{\"t\": 20}"}, {"role": "assistant", "content": "20"}, {"role": "user", "content": "ok"}],
    [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    [{"role": "assistant", "content": "first"}, {"role": "user", "content": ""}],
]
VARIABLES = [{}, {"enable_thinking": False}, {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}]


def by_strata(strata, template, conversation, tools, variables, prompt, folder):
    messages = folder / "messages.json"
    messages.write_text(json.dumps({"messages": conversation, "tools": tools}))
    names = {"bos_token": "<s>", "eos_token": "</s>", **variables}
    command = [strata, "template", "--template", template, "--messages", messages, "--vars", json.dumps(names), "--now", NOW.isoformat(), "--json"]
    result = subprocess.run(command + ([] if prompt else ["--no-generation-prompt"]), capture_output=True, text=True, check=False)
    return json.loads(result.stdout)["text"] if result.returncode == 0 else None


def main():
    strata, root = sys.argv[1], pathlib.Path(sys.argv[2])
    env = environment()
    cases = differences = 0
    with tempfile.TemporaryDirectory() as temporary:
        for template in sorted(root.rglob("*.jinja")):
            for conversation in CONVERSATIONS:
                for tools in (None, TOOLS):
                    for variables in VARIABLES:
                        for prompt in (True, False):
                            values = {"messages": conversation, "tools": tools, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>", **variables}
                            try:
                                wanted = env.from_string(template.read_text()).render(**values)
                            except Exception:
                                wanted = None
                            got = by_strata(strata, template, conversation, tools, variables, prompt, pathlib.Path(temporary))
                            cases += 1
                            if got != wanted:
                                differences += 1
                                print(f"{template}: {json.dumps(values)}\n  jinja2: {wanted!r}\n  strata: {got!r}")
    print(f"{cases} cases, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
