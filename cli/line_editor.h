// LineEditor: what a person types at a terminal, with cursor keys, a history that lasts, and pasted
// text as it is: its line breaks are part of the question.
//
// On libedit, whose licence is BSD's, and which reads ~/.editrc for those who want other keys. Two
// things are added to it: text between the marks of a bracketed paste is taken whole (libedit
// knows no paste), and Alt-Enter puts a line break.
#pragma once

#include <memory>
#include <string>

#include "cli/line_reader.h"

namespace strata::cli {

struct LineEditorOptions {
  // Kept there, for its user alone; empty: not kept.
  std::string history_file;
  // Standard output is the answer's, or no terminal: prompt and echo go to the terminal itself.
  bool keep_stdout_clean = false;
};

// The line editor if standard input is a terminal, else PlainLines.
std::unique_ptr<LineReader> make_line_reader(const LineEditorOptions& options);

}  // namespace strata::cli
