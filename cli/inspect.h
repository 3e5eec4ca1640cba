// `strata inspect MODEL`: what is in a model file, of any architecture, for people and programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/command.h"
#include "runtime/gguf/gguf_file.h"

namespace strata::cli {

struct InspectOptions {
  bool tensors = false;     // list every tensor
  std::string digest = {};  // shown if not empty
};

// The report as text, newline at the end. Names and strings from the file are shown with control
// characters escaped; long ones and arrays are shortened.
std::string inspect_text(const GgufFile& model, const InspectOptions& options = {});

// The same facts as one object. Shapes are innermost first; long arrays of the metadata are given
// as {"type", "count", "first"}.
nlohmann::json inspect_json(const GgufFile& model, const InspectOptions& options = {});

void add_inspect_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
