#include "serve/openai/sampling_fields.h"

#include <fmt/format.h>

#include <limits>

#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"
#include "runtime/grammar/grammar.h"

namespace strata::serve {
namespace {

constexpr size_t kStopsMax = 16;
constexpr size_t kBiasesMax = 10'000;
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

Result<std::optional<float>> real(const Fields& fields, std::string_view name, double low,
                                  double high) {
  const auto value = TRY(fields.number(name, low, high));
  if (!value) return std::optional<float>();
  return std::optional(static_cast<float>(*value));
}

// One field under either of two names.
Result<std::optional<float>> real(const Fields& fields, std::string_view name,
                                  std::string_view other, double low, double high) {
  return real(fields, fields.has(name) ? name : other, low, high);
}

Status read_limits(const Fields& fields, int64_t least_tokens, AnswerCall& call) {
  for (const std::string_view name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    const auto value = TRY(fields.integer(name, least_tokens, kInt32Max));
    if (!value) continue;
    call.request.max_tokens = static_cast<uint32_t>(*value);
    call.extras.no_answer = *value == 0;
  }
  call.request.ignore_end = TRY(fields.boolean("ignore_eos")).value_or(false);
  TRY(fields.only("min_tokens", {0}));
  TRY(fields.only("t_max_predict_ms", {0, -1}));
  // Nothing is shifted out of the context, so that these have nothing to say.
  TRY(fields.integer("n_keep", -1, kInt32Max));
  TRY(fields.integer("n_discard", 0, kInt32Max));
  return ok_status();
}

// Settings of other engines' samplers. Ignoring them would give other answers than were asked for.
Status refuse_unknown_samplers(const Fields& fields) {
  TRY(fields.only("typical_p", {1}));
  TRY(fields.only("typ_p", {1}));
  TRY(fields.only("tfs_z", {1}));
  TRY(fields.only("top_a", {0}));
  TRY(fields.only("mirostat", {0}));
  TRY(fields.only("dry_multiplier", {0}));
  TRY(fields.only("xtc_probability", {0}));
  TRY(fields.only("top_n_sigma", {-1, 0}));
  TRY(fields.only("dynatemp_range", {0}));
  TRY(fields.only("adaptive_target", {-1, 0}));
  TRY(fields.only("n_probs", {0}));
  if (TRY(fields.boolean("post_sampling_probs")).value_or(false)) {
    return fields.unsupported("post_sampling_probs");
  }
  for (const std::string_view name : {"samplers", "lora"}) {
    const Json* value = fields.find(name);
    if (value != nullptr && !value->empty()) return fields.unsupported(name);
  }
  return ok_status();
}

Status read_seed(const Fields& fields, AnswerCall& call) {
  const Json* seed = fields.find("seed");
  if (seed == nullptr) return ok_status();
  if (seed->is_number_unsigned()) {
    call.request.seed = seed->get<uint64_t>();
    return ok_status();
  }
  const auto number = TRY(fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                         std::numeric_limits<int64_t>::max()));
  if (*number != -1) call.request.seed = static_cast<uint64_t>(*number);  // -1: any
  return ok_status();
}

Status read_stop(const Fields& fields, AnswerCall& call) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return ok_status();
  if (stop->is_string()) {
    call.request.stop = {stop->get<std::string>()};
  } else if (!stop->is_array()) {
    return fields.wrong_type("stop", "a string or a list of strings");
  } else if (stop->size() > kStopsMax) {
    return fields.wrong(
        "stop", fmt::format("has {} strings, at most {} are allowed", stop->size(), kStopsMax));
  } else {
    for (const Json& entry : *stop) {
      if (!entry.is_string()) return fields.wrong("stop", "has an entry that is no string");
      call.request.stop.push_back(entry.get<std::string>());
    }
  }
  for (const std::string& text : call.request.stop) {
    if (text.empty()) return fields.wrong("stop", "has an empty string, which would stop at once");
  }
  return ok_status();
}

// A bias for a token by its number, or for each token of a text.
Status add_bias(const Fields& fields, const Tokenizer& tokenizer, const Json& key,
                const Json& value, AnswerCall& call) {
  float bias = 0;
  if (value.is_number() && value.get<double>() >= -100 && value.get<double>() <= 100) {
    bias = value.get<float>();
  } else if (value == false) {
    bias = -std::numeric_limits<float>::infinity();
  } else {
    return fields.wrong("logit_bias", "has a bias that is no number from -100 to 100");
  }
  if (key.is_string()) {
    for (const int32_t id : tokenizer.encode(key.get_ref<const std::string&>())) {
      call.request.logit_bias.emplace_back(id, bias);
    }
    return ok_status();
  }
  const int64_t size = tokenizer.vocab().size();
  const bool is_id =
      key.is_number_integer() && key.get<int64_t>() >= 0 && key.get<int64_t>() < size;
  if (!is_id) {
    return fields.wrong("logit_bias", fmt::format("names token {}, must be a number from 0 to {}",
                                                  printable(dump_json(key), 30), size - 1));
  }
  call.request.logit_bias.emplace_back(key.get<int32_t>(), bias);
  return ok_status();
}

Status read_logit_bias(const Fields& fields, const Tokenizer& tokenizer, AnswerCall& call) {
  const Json* biases = fields.find("logit_bias");
  if (biases == nullptr) return ok_status();
  if (!biases->is_object() && !biases->is_array()) {
    return fields.wrong_type("logit_bias", "an object of token ids and biases");
  }
  if (biases->size() > kBiasesMax) {
    return fields.wrong("logit_bias", fmt::format("has {} entries, at most {} are allowed",
                                                  biases->size(), kBiasesMax));
  }
  if (biases->is_array()) {
    for (const Json& entry : *biases) {
      if (!entry.is_array() || entry.size() != 2) {
        return fields.wrong("logit_bias", "has an entry that is no [token, bias]");
      }
      TRY(add_bias(fields, tokenizer, entry[0], entry[1], call));
    }
    return ok_status();
  }
  for (const auto& [key, value] : biases->items()) {
    const Json id = Json::parse(key, nullptr, false);
    TRY(add_bias(fields, tokenizer, id.is_number() ? id : Json(-1), value, call));
  }
  return ok_status();
}

Status set_grammar(const Fields& fields, std::string_view name, GrammarSpec spec,
                   AnswerCall& call) {
  if (call.request.grammar.kind != GrammarSpec::Kind::none) {
    return fields.wrong(name, "stands beside another grammar", "leave one of them out");
  }
  const Status compiled = grammar::compile_grammar(spec, grammar::Strictness::generation).status();
  if (!compiled.ok()) {
    fields.param() = name;
    return compiled;
  }
  call.request.grammar = std::move(spec);
  return ok_status();
}

}  // namespace

Status read_response_format(const Fields& fields, AnswerCall& call) {
  using Kind = GrammarSpec::Kind;
  if (const auto grammar = TRY(fields.text("grammar")); grammar && !grammar->empty()) {
    TRY(set_grammar(fields, "grammar", {.kind = Kind::gbnf, .text = *grammar}, call));
  }
  if (const Json* schema = TRY(fields.object("json_schema"))) {
    TRY(set_grammar(fields, "json_schema", {.kind = Kind::json_schema, .text = dump_json(*schema)},
                    call));
  }
  const Json* format = TRY(fields.object("response_format"));
  if (format == nullptr) return ok_status();
  const Fields inner(*format, fields.param(), "response_format.");
  const auto type = TRY(inner.word("type", {"text", "json_object", "json_schema"}));
  if (!type) return inner.wrong("type", "is missing");
  if (*type == "text") return ok_status();
  const Json* schema = nullptr;
  if (*type == "json_schema") {
    const Json* described = TRY(inner.object("json_schema"));
    if (described == nullptr) return inner.wrong("json_schema", "is missing");
    const Fields description(*described, fields.param(), "response_format.json_schema.");
    TRY(description.text("name"));
    TRY(description.boolean("strict"));
    schema = TRY(description.object("schema"));
    if (schema == nullptr) return description.wrong("schema", "is missing");
  } else {
    schema = TRY(inner.object("schema"));
  }
  const std::string text = schema == nullptr ? R"({"type": "object"})" : dump_json(*schema);
  return set_grammar(fields, "response_format", {.kind = Kind::json_schema, .text = text}, call);
}

Status read_common_fields(const Fields& fields, int64_t least_tokens, const Tokenizer& tokenizer,
                          AnswerCall& call) {
  remote::GenerateRequest& request = call.request;
  request.temperature = TRY(real(fields, "temperature", 0, 100));
  request.top_p = TRY(real(fields, "top_p", 0, 1));
  request.min_p = TRY(real(fields, "min_p", 0, 1));
  if (const auto top_k = TRY(fields.integer("top_k", -1, kInt32Max))) {
    request.top_k = static_cast<int32_t>(std::max<int64_t>(*top_k, 0));  // -1 and 0: all
  }
  request.repetition_penalty = TRY(real(fields, "repeat_penalty", "repetition_penalty", 0.01, 100));
  request.frequency_penalty = TRY(real(fields, "frequency_penalty", -100, 100));
  request.presence_penalty = TRY(real(fields, "presence_penalty", -100, 100));
  if (const auto look_back = TRY(fields.integer("repeat_last_n", -1, kInt32Max))) {
    call.extras.penalty_last_n = static_cast<int32_t>(*look_back);
  }
  TRY(refuse_unknown_samplers(fields));
  TRY(read_limits(fields, least_tokens, call));
  TRY(read_seed(fields, call));
  TRY(read_stop(fields, call));
  TRY(read_logit_bias(fields, tokenizer, call));
  return read_response_format(fields, call);
}

}  // namespace strata::serve
