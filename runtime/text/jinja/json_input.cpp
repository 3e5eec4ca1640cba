// JSON text as values of a rendering.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"
#include "runtime/text/jinja/json_text.h"

namespace strata::jinja {
namespace {

constexpr size_t kDepthMax = 200;

// Builds values from the events of the library's parser, which keeps its own stack: no depth of
// input is a danger.
class ValueBuilder {
 public:
  explicit ValueBuilder(Runtime& runtime) : runtime_(runtime) {}

  bool null() { return add(Value()); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return add(static_cast<int64_t>(value));
    return add(Value::of(*BigInteger::parse(std::to_string(value))));
  }
  bool number_float(double value, const std::string& digits) {
    // The library hands integers beyond 64 bits over as floats.
    if (digits.find_first_of(".eE") == std::string::npos) {
      if (digits.size() > 4300) return fail("a number has more than 4300 digits");
      return add(Value::of(*BigInteger::parse(digits)));
    }
    return add(value);
  }
  bool string(std::string& value) {
    Result<Value> text = runtime_.text(std::move(value), true);
    if (!text.ok()) return fail(text.status().message());
    return add(std::move(text).value());
  }
  bool binary(nlohmann::json::binary_t&) { return fail("binary data"); }
  bool start_object(size_t) { return open(runtime_.make<Dict>()); }
  bool start_array(size_t) { return open(runtime_.list({})); }
  bool key(std::string& name) {
    Result<Value> text = runtime_.text(std::move(name), true);
    if (!text.ok()) return fail(text.status().message());
    keys_.push_back(std::move(text).value());
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
    // Without the library's own tag: "[json.exception.parse_error.101] parse error at line ...".
    const std::string_view text = error.what();
    const size_t tag = text.find("] ");
    return fail(tag == std::string_view::npos ? text : text.substr(tag + 2));
  }

  const Value& root() const { return root_; }
  const std::string& problem() const { return problem_; }

 private:
  bool fail(std::string_view problem) {
    if (problem_.empty()) problem_ = problem;
    return false;
  }
  bool add(Value value) {
    if (const Status status = runtime_.charge(); !status.ok()) return fail(status.message());
    runtime_.grow(sizeof(Value));
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is(Value::Kind::list)) {
      open_.back().list()->items.push_back(std::move(value));
    } else {
      open_.back().dict()->set(std::move(keys_.back()), std::move(value));
      keys_.pop_back();
    }
    return true;
  }
  bool open(Value container) {
    if (open_.size() >= kDepthMax) {
      return fail(fmt::format("values nest deeper than {}", kDepthMax));
    }
    if (!add(container)) return false;
    open_.push_back(std::move(container));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Runtime& runtime_;
  Value root_;
  std::vector<Value> open_;
  std::vector<Value> keys_;
  std::string problem_;
};

}  // namespace

Result<Value> parse_json(Runtime& runtime, std::string_view json, std::string_view what) {
  TRY(check_no_nul(json, what));
  ValueBuilder builder(runtime);
  const bool parsed = nlohmann::json::sax_parse(json, &builder);
  if (!parsed || !builder.problem().empty()) {
    return invalid_argument(fmt::format("{} {} no JSON: {}", what,
                                        what.ends_with('s') ? "are" : "is",
                                        printable(builder.problem(), 200)));
  }
  return builder.root();
}

}  // namespace strata::jinja
