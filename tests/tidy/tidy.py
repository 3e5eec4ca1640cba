#!/usr/bin/env python3
"""Checks the rules of docs/style.md that a machine can check, and fails with file:line for each breach.

Usage: tests/tidy/tidy.py [ROOT]. Exceptions stand with their reasons in tests/tidy/allowed.txt.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
CODE = {".h", ".cpp", ".cu", ".cuh"}
TEXT = CODE | {".md", ".txt", ".py", ".sh", ".cmake", ".proto", ".json", ".yml", ".yaml"}
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100

# What a folder may include of the project's own, beside itself. Arrows point down only.
RUNTIME_ORDER = ["base", "topology", "tensor", "graph", "memory", "device", "sched", "gguf", "sampling", "model", "text", "grammar"]
ARROWS = {
    "runtime/base": [],
    "runtime/topology": ["runtime/base"],
    "runtime/tensor": ["runtime/base"],
    "runtime/graph": ["runtime/base", "runtime/tensor"],
    "runtime/memory": ["runtime/base", "runtime/tensor", "runtime/graph"],
    "runtime/device": ["runtime/base", "runtime/tensor", "runtime/graph", "runtime/memory"],
    "runtime/sched": ["runtime/base", "runtime/tensor", "runtime/graph", "runtime/memory", "runtime/device"],
    "runtime/gguf": ["runtime/base", "runtime/tensor"],
    "runtime/sampling": ["runtime/base"],
    "runtime/text": ["runtime/base", "runtime/tensor", "runtime/gguf"],
    "runtime/grammar": ["runtime/base", "runtime/gguf", "runtime/sampling", "runtime/text"],
    "runtime/model": ["runtime"],
    "backends/cpu": ["runtime"],
    "backends/cuda": ["runtime"],
    "backends/remote": ["runtime", "proto"],
    "backends": ["runtime", "backends/cpu", "backends/cuda"],
    "worker": ["runtime", "backends", "proto"],
    "coordinator": ["runtime", "backends/remote", "proto"],
    "serve": ["runtime", "backends", "proto", "worker", "coordinator"],
    "cli": ["runtime", "backends", "proto", "worker", "coordinator", "serve"],
    "tests": ["runtime", "backends", "proto", "worker", "coordinator", "serve", "cli"],
}
# Folders without any word of gRPC, protobuf or Boost.
PURE = ["runtime/", "backends/cpu/", "coordinator/engine/", "coordinator/planner/"]
BANNED = [
    (re.compile(r"\bthrow\b(?!\()"), "throw: errors are values (runtime/base/status.h)", CODE),
    (re.compile(r"\bgetenv\s*\("), "getenv: the environment is read in cli/ only", CODE),
    (re.compile(r"\bstd::cout\b|\bstd::cerr\b"), "std::cout/cerr: print through cli/ or runtime/base/log.h", CODE),
    (re.compile(r"\bTODO\b|\bFIXME\b|\bXXX\b"), "an open end: finish it or describe the limit in words", CODE),
    (re.compile("|".join(f"/{home}/" for home in ("work", "root"))), "a path of somebody's machine", TEXT),
    (re.compile(r"\bissue #?[0-9]", re.I), "an issue's number", TEXT),
    (re.compile(r"\b(pypi|pythonhosted|deb\.debian|registry\.npmjs)\.org\b"), "a registry's host", TEXT),
]


def tracked_files():
    out = None
    if shutil.which("git"):
        out = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
                             capture_output=True, text=True, check=False)
    if out and out.returncode == 0:
        names = out.stdout.split("\n")
    else:  # an exported tree, or a machine without git
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and "build" not in p.parts]
    return sorted(n for n in names if n and not n.startswith(("tests/data/", "build/")) and (ROOT / n).is_file())


def allowed():
    """Lines 'path: rule: reason' with rule one of length, function, throw, getenv, print, include, column."""
    rules = {}
    for line in (ROOT / "tests/tidy/allowed.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            path, rule, reason = (part.strip() for part in line.split(":", 2))
            assert reason, f"allowed.txt: {path} without a reason"
            rules.setdefault(path, set()).add(rule)
    return rules


def folder_of(name):
    return max((f for f in ARROWS if name.startswith(f + "/")), key=len, default=None)


def check_includes(name, lines, report):
    folder = folder_of(name)
    if folder is None or folder == "tests":
        return
    targets = [folder] + ARROWS[folder]
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#include "([^"]+)"', line)
        if match and match[1].split("/")[0] in {f.split("/")[0] for f in ARROWS}:
            ok = any(match[1].startswith(t + "/") for t in targets)
            if folder == "runtime/model" and match[1].startswith(("runtime/text/",)):
                ok = False  # the model knows tokens only as numbers
            if not ok:
                report(number, "include", f"{folder} may not include {match[1]}")
        if any(name.startswith(p) for p in PURE) and re.search(r"#include <(grpc|google/protobuf|boost)", line):
            report(number, "include", "no gRPC, protobuf or Boost here")


def check_functions(lines, report):
    """Google style indents nothing inside namespaces: a function closes with '}' in column 0, a class's method in column 2."""
    start = None
    closing = ""
    in_class = False
    for number, line in enumerate(lines, 1):
        if start is not None:
            if line.startswith(closing):
                if number - start + 1 > MAX_FUNCTION_LINES:
                    report(start, "function", f"function of {number - start + 1} lines, {MAX_FUNCTION_LINES} at most")
                start = None
        elif re.match(r"(class|struct|union) .*\{$", line):
            in_class = True
        elif in_class and line.startswith("}"):
            in_class = False
        elif line.endswith("{") and in_class:
            if re.match(r" {2}", line) and ")" in line:
                start, closing = number, "  }"
        elif line.endswith("{") and re.match(r"[A-Za-z~\[ ]", line) and not re.match(
                r"(inline )?(namespace|class|struct|enum|union|extern|export|template|constexpr std::array|const [\w:<>]+ k)", line) \
                and (")" in line or re.match(r" {4}", line)):
            start, closing = number, "}"


def check_file(name, exceptions):
    problems = []
    path = ROOT / name
    suffix = path.suffix
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        return [] if suffix not in TEXT else [f"{name}:1: not UTF-8"]

    def report(number, rule, message):
        if rule not in exceptions.get(name, set()):
            problems.append(f"{name}:{number}: {message}")

    is_tidy = name.startswith("tests/tidy/")
    for pattern, message, kinds in BANNED:
        if suffix not in kinds or is_tidy:
            continue
        rule = message.split(":")[0].split("/")[0].split("::")[0].strip() if kinds is CODE else "words"
        rule = {"std": "print"}.get(rule, rule)
        if rule == "getenv" and name.startswith(("cli/", "tests/")):
            continue
        for number, line in enumerate(lines, 1):
            code = re.sub(r"//.*", "", line) if rule in ("throw", "getenv", "print") else line
            code = re.sub(r'"(\\.|[^"\\])*"', '""', code) if rule in ("throw",) else code
            if pattern.search(code):
                report(number, rule, message)
    if suffix in CODE:
        if len(lines) > MAX_FILE_LINES:
            report(MAX_FILE_LINES, "length", f"{len(lines)} lines, {MAX_FILE_LINES} at most")
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS and "http" not in line and 'R"' not in line:
                report(number, "column", f"{len(line)} columns, {MAX_COLUMNS} at most")
        check_includes(name, lines, report)
        check_functions(lines, report)
        if suffix == ".h":
            if not lines[0].startswith("//"):
                report(1, "head", "a header begins with a comment that says what it is")
            if "#pragma once" not in lines:
                report(1, "head", "#pragma once is missing")
        if name.startswith("tests/") and name.endswith("_test.cpp") and not lines[0].startswith("//"):
            report(1, "head", "a test begins with a comment: goal and method")
    return problems


def main():
    exceptions = allowed()
    names = tracked_files()
    problems = [p for name in names for p in check_file(name, exceptions)]
    for path in exceptions:
        if path not in names:
            problems.append(f"tests/tidy/allowed.txt: {path} is gone: drop its exception")
    for problem in problems:
        print(problem)
    print(f"tidy: {len(names)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
