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
    """Lines 'path: rule: reason' with rule one of length, function, throw, getenv, print, include, column, thread, try."""
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


def code_of(lines):
    """The text without comments and the insides of literals, of the same length, so that offsets and lines stay."""
    def blank(match):
        text = match[0]
        if text.startswith("//"):
            return " " * len(text)
        return text[0] + re.sub(r"[^\n]", " ", text[1:-1]) + text[-1]
    return re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', blank, "\n".join(lines))


THREAD_HELPER = "runtime/base/thread_start."
PRODUCT = ("runtime/", "backends/", "worker/", "coordinator/", "serve/", "cli/")


def check_threads(name, code, sibling, report):
    """A thread that the system refuses is a Status: threads start in runtime/base/thread_start.h alone."""
    if not name.startswith(PRODUCT) or name.startswith(THREAD_HELPER):
        return
    names = re.findall(r"\bstd::thread\s+(\w+)\s*[;,=]", code + sibling)
    pools = re.findall(r"\bstd::vector<std::thread>\s+(\w+)", code + sibling)
    starts = [r"\bstd::jthread\b", r"\bstd::async\b", r"\bpthread_create\b", r"\bstd::thread\s*(\w+\s*)?[({]\s*[^)}\s]"]
    starts += [rf"\b{n}\s*[({{]\s*\[" for n in names] + [rf"\b{n}\.emplace_back\(" for n in pools]
    for match in re.finditer("|".join(starts), code):
        if not re.search(r"start_thread\(\s*$", code[:match.start()]):
            report(code.count("\n", 0, match.start()) + 1, "thread", "a thread is started by runtime/base/thread_start.h only")


BLOCK = re.compile(r"(?:^|[)\];{}:]|\b(?:else|do|try|const|noexcept|override|final|mutable)|->\s*[\w:<>*&, ]+)\s*$")


def tries_in_larger_expressions(code):
    """Offsets of a TRY that leaves an expression whose other temporaries exist by then: g++ 12 does not destroy them."""
    for match in re.finditer(r"\bTRY\(", code):
        depth = 0
        argument_end = None  # of arguments before it, at the depth of the bracket around it
        for at in range(match.start() - 1, -1, -1):
            char = code[at]
            if char in ")]}":
                depth += 1
            elif char in "([{":
                if depth > 0:
                    depth -= 1
                    continue
                if char == "{" and BLOCK.search(code[max(0, at - 200):at]):
                    break
                before = code[at + 1:argument_end] if argument_end is not None else ""
                if char == "{" or re.search(r"[({]", before):
                    yield match.start()
                    break
                argument_end = None
            elif depth == 0 and char == ";":
                break
            elif depth == 0 and char == "," and argument_end is None:
                argument_end = at


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
        code = code_of(lines)
        header = path.with_suffix(".h")
        sibling = code_of(header.read_text(encoding="utf-8").split("\n")) if suffix == ".cpp" and header.is_file() else ""
        check_threads(name, code, sibling, report)
        if "define TRY" not in code:
            for offset in tries_in_larger_expressions(code):
                report(code.count("\n", 0, offset) + 1, "try",
                       "TRY inside a larger expression leaks: give its value a name first")
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
