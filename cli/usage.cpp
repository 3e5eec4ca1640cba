#include "cli/usage.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "runtime/base/text_table.h"
#include "runtime/base/utf8.h"

namespace strata::cli {
namespace {

// Names longer than this have their description on the next line.
constexpr size_t kNameColumns = 30;
constexpr size_t kWordShownBytes = 60;

// Words of `text` in lines of at most `columns`, the later ones after `indent` spaces.
std::string wrap(std::string_view text, size_t columns, size_t indent) {
  std::string out;
  size_t column = indent;
  bool is_first = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t width = shown_width(word);
    if (!is_first && column + 1 + width > columns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!is_first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += width;
    is_first = false;
  }
  return out;
}

std::string entry(const std::string& name, const std::string& description, size_t columns) {
  std::string text = "  " + name;
  const size_t at = shown_width(text) + 2 <= columns ? columns : 0;
  text += at > 0 ? std::string(columns - shown_width(text), ' ') : "\n" + std::string(columns, ' ');
  return text + wrap(description, kHelpColumns, columns) + "\n";
}

// What the parser appends to a type's name for a number between bounds: ":INT in [0 - 64]".
constexpr std::string_view kBounds = ":INT in [";

std::string type_name(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(kBounds));
}

// ", 0 to 64" if there are bounds.
std::string bounds_text(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  const size_t begin = name.find(kBounds);
  const size_t middle = name.find(" - ", begin);
  const size_t end = name.find(']', begin);
  if (begin == std::string::npos || middle > end || end == std::string::npos) return {};
  const size_t first = begin + kBounds.size();
  return fmt::format(", {} to {}", name.substr(first, middle - first),
                     name.substr(middle + 3, end - middle - 3));
}

// "-m, --model FILE", "    --json", "TEXT".
std::string option_name(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true, false);
  std::string name;
  for (const std::string& s : option.get_snames()) name += fmt::format("-{}, ", s);
  if (name.empty()) name = "    ";
  for (const std::string& l : option.get_lnames()) name += fmt::format("--{}, ", l);
  name.resize(name.size() - 2);
  if (option.get_items_expected_max() > 0) name += " " + type_name(option);
  return name;
}

std::string option_description(const CLI::Option& option) {
  std::string text = option.get_description() + bounds_text(option);
  if (!option.get_default_str().empty()) {
    text += fmt::format(" (default {})", option.get_default_str());
  }
  if (option.get_required()) text += " (required)";
  return text;
}

std::string usage_line(const CLI::App& command) {
  std::string line = fmt::format("strata {}", command.get_name());
  bool has_options = false;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional() || option == command.get_help_ptr()) continue;
    if (!option->get_required()) {
      has_options = true;
      continue;
    }
    const std::string name = option_name(*option);
    line += " " + name.substr(name.front() == ' ' ? 4 : 0, std::string::npos);
  }
  // The short name alone where there is one: "-m FILE".
  for (size_t at = line.find(", --"); at != std::string::npos; at = line.find(", --")) {
    line.erase(at, std::min(line.find(' ', at + 2), line.size()) - at);
  }
  if (has_options) line += " [OPTIONS]";
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    line += option->get_required() ? " " + option_name(*option)
                                   : fmt::format(" [{}]", option_name(*option));
  }
  return line;
}

std::string command_help(const CLI::App& command) {
  std::string text = wrap(command.get_description() + ".", kHelpColumns, 0) + "\n\nUsage:\n  " +
                     usage_line(command) + "\n";
  if (!command.get_footer().empty()) text += "\nExample:\n  " + command.get_footer() + "\n";
  std::vector<std::string> groups;
  for (const CLI::Option* option : command.get_options()) {
    const std::string& group = option->get_group();
    if (!group.empty() && std::find(groups.begin(), groups.end(), group) == groups.end()) {
      groups.push_back(group);
    }
  }
  // How it is printed comes last.
  std::stable_partition(groups.begin(), groups.end(),
                        [](const std::string& group) { return group != "Output"; });
  for (const std::string& group : groups) {
    text += fmt::format("\n{}:\n", group);
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_group() != group) continue;
      text += entry(option_name(*option), option_description(*option), kNameColumns);
    }
  }
  return text;
}

std::string program_help(const CLI::App& app) {
  std::string text =
      app.get_description() +
      "\n\nUsage:\n  strata COMMAND [OPTIONS]\n  strata COMMAND --help\n\nCommands:\n";
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    text += entry(command->get_name(), command->get_description(), 16);
  }
  text += "\nOptions before the command:\n";
  for (const CLI::Option* option : app.get_options()) {
    text += entry(option_name(*option), option_description(*option), kNameColumns);
  }
  return text;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::vector<size_t> earlier(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    earlier.swap(before);
    before.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, changed});
      // Two neighbours that changed places are one slip.
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], earlier[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

Status with_suggestion(const std::string& message, const std::string& meant,
                       const std::string& otherwise) {
  return invalid_argument(message,
                          meant.empty() ? otherwise : fmt::format("did you mean {}?", meant));
}

Status unknown_word(const std::string& word, const CLI::App& command, bool is_program) {
  const std::string shown = printable(word, kWordShownBytes);
  const std::string help =
      is_program ? "strata --help" : "strata " + command.get_name() + " --help";
  if (word.size() > 1 && word.front() == '-') {
    const std::string name = word.substr(0, word.find('='));
    return with_suggestion(
        is_program ? fmt::format("no option {} stands before a command", shown)
                   : fmt::format("strata {} has no option {}", command.get_name(), shown),
        nearest(name, option_names(command)), help + " lists the options");
  }
  if (!is_program) {
    return invalid_argument(
        fmt::format("strata {}: '{}' is one word too many", command.get_name(), shown),
        "put quotes around text with spaces; " + help + " lists the options");
  }
  std::vector<std::string> names;
  for (const CLI::App* each : command.get_subcommands(nullptr)) names.push_back(each->get_name());
  return with_suggestion(fmt::format("'{}' is no command", shown), nearest(word, names),
                         help + " lists the commands");
}

}  // namespace

std::string help_text(const CLI::App& app) {
  const bool is_program = app.get_parent() == nullptr;
  return is_program ? program_help(app) : command_help(app);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = word.size() / 3 + 1;
  for (const std::string& candidate : candidates) {
    // The beginning of a name is near to it.
    const bool begins = word.size() >= 2 && std::string_view(candidate).starts_with(word);
    const size_t distance = begins ? 0 : edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

Status usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const bool is_program = chosen.empty();
  const CLI::App& command = is_program ? app : *chosen.front();
  const auto is_option = [](const std::string& text) {
    return !text.empty() && text.front() == '-' && text != "--json";
  };
  // Left over before the command; without one, all words are, and the first that is no option is
  // the one meant.
  const std::vector<std::string> before = app.remaining();
  const auto word = std::find_if(before.begin(), before.end(), [](const std::string& text) {
    return text.empty() || text.front() != '-';
  });
  if (is_program && word != before.end()) return unknown_word(*word, app, true);
  const auto option = std::find_if(before.begin(), before.end(), is_option);
  if (option != before.end()) return unknown_word(*option, app, true);
  if (is_program && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return invalid_argument("no command is given", "strata --help lists the commands");
  }
  const std::vector<std::string> rest =
      is_program ? std::vector<std::string>() : command.remaining();
  const bool is_missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  // A misspelt option may be why a required one is missing.
  if (!rest.empty() && (!is_missing || is_option(rest.front()))) {
    return unknown_word(rest.front(), command, false);
  }
  std::string message = error.what();
  for (char& c : message) {
    if (c == '\n') c = ' ';
  }
  const std::string where = is_program ? "strata" : "strata " + command.get_name();
  return invalid_argument(fmt::format("{}: {}", where, printable(message, 400)),
                          where + " --help explains the options");
}

}  // namespace strata::cli
