#!/usr/bin/env python3
"""Planted breaches: what tidy.py must find, and what looks like a breach and is none."""
import unittest

import tidy


def thread_lines(text, name="worker/x.cpp", header=""):
    found = []
    code = tidy.code_of(text.split("\n"))
    tidy.check_threads(name, code, header, lambda number, rule, message: found.append(number))
    return found


def try_lines(text):
    code = tidy.code_of(text.split("\n"))
    return [code.count("\n", 0, offset) + 1 for offset in tidy.tries_in_larger_expressions(code)]


class Threads(unittest.TestCase):
    def test_direct_starts_are_found(self):
        for text in ("std::vector<std::jthread> helpers;", "auto t = std::thread([] {});", "std::thread t([this] { run(); });",
                     "std::async(f);", "pthread_create(&t, nullptr, f, nullptr);",
                     "std::vector<std::thread> all;\nall.emplace_back([] {});"):
            self.assertEqual(len(thread_lines(text)), 1, text)
        self.assertEqual(thread_lines("X::X() : thread_([this] { run(); }) {}", header="std::thread thread_;"), [1])

    def test_the_helper_and_tests_may(self):
        text = "thread = std::thread([] {});"
        self.assertEqual(thread_lines(text, "runtime/base/thread_start.cpp"), [])
        self.assertEqual(thread_lines(text, "tests/worker/x_test.cpp"), [])

    def test_what_starts_none_is_left_alone(self):
        for text in ("std::thread thread_;  // std::jthread would not do", "std::thread thread;\nTRY(start_thread(thread, [this] { run(); }));",
                     'log("std::thread t(f)");', "void join(std::thread& thread);", "std::vector<std::thread> started(wanted);",
                     "std::thread::hardware_concurrency()"):
            self.assertEqual(thread_lines(text), [], text)


class Tries(unittest.TestCase):
    def test_larger_expressions_are_found(self):
        for line in ("Held held{.digest = order.digest, .weights = TRY(load(a))};", "list.push_back({std::string(key), TRY(value())});",
                     "return Value(tuple({TRY(slice(0)), rest}));", "call(std::string(key), TRY(value()));",
                     "return ToWorker{id, TRY(take(message))};"):
            self.assertEqual(try_lines("Status f() {\n  " + line + "\n}"), [2], line)

    def test_statements_initialisers_and_conditions_are_right(self):
        for line in ("TRY(check(x));", "const auto n = TRY(read(a, {1, 2}));", "return TRY(f(x));", "if (TRY(is_set(x)) && y) {}",
                     "list.push_back(TRY(slice(text, line.begin, keep ? line.next : line.end)));",
                     "const int64_t start = bound.is_set(1) ? TRY(argument(bound, 1)) : 0;", "for (const Value& v : TRY(collect(x))) {}",
                     "const auto f = [&]() -> Result<int> { return TRY(g()); };", "take(text, begin, TRY(end()));",
                     'log("{TRY(");  // {TRY(x)}', "switch (x) { case 1: TRY(f(x)); }"):
            self.assertEqual(try_lines("Status f() {\n  " + line + "\n}"), [], line)


if __name__ == "__main__":
    unittest.main()
