#include "serve/openai/json_body.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"

namespace strata::serve {
namespace {

constexpr size_t kDepthMax = 200;
constexpr size_t kValuesMax = size_t{2} << 20;

// The library's parser calls this for each part of the text; it does not recurse, nor throw here.
class BodyBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(string_t& name) {
    if (!open_.back().keys.insert(name).second) {
      return fail(fmt::format("the name '{}' comes twice in one object", printable(name)));
    }
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what: why"
    const std::string_view text = error.what();
    const size_t begin = text.find("at line");
    return fail(
        begin == std::string_view::npos
            ? fmt::format("no JSON at byte {}: {}", position,
                          printable(text.substr(std::min(text.find("] ") + 2, text.size()))))
            : "no JSON " + printable(text.substr(begin), 200));
  }

  Json root;
  std::string failure;

 private:
  struct Open {
    Json value;
    std::string key = {};  // of the member that comes next
    std::unordered_set<std::string> keys = {};
  };

  bool fail(std::string what) {
    if (failure.empty()) failure = std::move(what);
    return false;
  }
  bool add(Json value) {
    if (++count_ > kValuesMax) return fail(fmt::format("more than {} values", kValuesMax));
    put(std::move(value));
    return true;
  }
  void put(Json value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.push_back(std::move(value));
    } else {
      // Not operator[], which looks through all members: key() knows that there is none.
      auto& members = open_.back().value.get_ref<Json::object_t&>();
      members.push_back({std::move(open_.back().key), std::move(value)});
    }
  }
  bool open(Json value) {
    if (open_.size() >= kDepthMax) return fail(fmt::format("deeper than {} levels", kDepthMax));
    if (++count_ > kValuesMax) return fail(fmt::format("more than {} values", kValuesMax));
    open_.push_back({std::move(value)});
    return true;
  }
  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    put(std::move(value));
    return true;
  }

  std::vector<Open> open_;
  size_t count_ = 0;
};

}  // namespace

Result<Json> parse_json_object(std::string_view text) {
  if (text.empty()) {
    return invalid_argument("the request has no body, must be a JSON object",
                            "send it with Content-Type: application/json");
  }
  TRY(check_no_nul(text, "the body"));
  BodyBuilder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return invalid_argument("the body: " + builder.failure);
  }
  if (!builder.root.is_object()) {
    return invalid_argument(
        fmt::format("the body is a JSON {}, must be an object", builder.root.type_name()));
  }
  return std::move(builder.root);
}

}  // namespace strata::serve
