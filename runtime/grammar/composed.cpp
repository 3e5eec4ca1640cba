#include "runtime/grammar/composed.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "runtime/base/utf8.h"
#include "runtime/grammar/byte_emitter.h"
#include "runtime/grammar/expression.h"
#include "runtime/grammar/json_document.h"
#include "runtime/grammar/schema_emitter.h"
#include "runtime/text/unicode.h"

namespace strata::grammar {
namespace {

// Nodes inside each other. Tool calls need six.
constexpr int kDepthMax = 40;

// Adds another automaton's states and rules. The rule that was its whole text.
RuleId append(Pda& pda, const Pda& part) {
  const auto state_offset = static_cast<StateId>(pda.states.size());
  const auto rule_offset = static_cast<RuleId>(pda.rules.size());
  const auto op_offset = static_cast<OpId>(pda.ops.size()) - 1;  // op 0 is none, in both
  const auto control_offset = static_cast<uint32_t>(pda.controls.size()) - 1;  // as is control 0
  const auto reach_offset = static_cast<uint32_t>(pda.reaches.size());
  const auto moved_op = [op_offset](OpId op) { return op == kNoOp ? kNoOp : op + op_offset; };
  const auto moved_control = [control_offset](uint32_t control) {
    return control == 0 ? 0 : control + control_offset;
  };
  for (Pda::State state : part.states) {
    for (Pda::Edge& edge : state.edges) {
      edge.target += state_offset;
      edge.op = moved_op(edge.op);
    }
    for (Pda::Call& call : state.calls) {
      call.rule += rule_offset;
      call.next += state_offset;
      call.op = moved_op(call.op);
    }
    state.control = moved_control(state.control);
    state.guard = moved_op(state.guard);
    pda.states.push_back(std::move(state));
  }
  for (const StateId start : part.rules) pda.rules.push_back(start + state_offset);
  for (size_t i = 1; i < part.ops.size(); ++i) {
    Op op = part.ops[i];
    op.control = moved_control(op.control);
    if (op.kind == Op::Kind::reach) op.value += reach_offset;
    pda.ops.push_back(op);
  }
  pda.controls.insert(pda.controls.end(), part.controls.begin() + 1, part.controls.end());
  pda.reaches.insert(pda.reaches.end(), part.reaches.begin(), part.reaches.end());
  return rule_offset;
}

class Composer {
 public:
  explicit Composer(const JsonDocument& document) : document_(document) {
    pda_->rules.push_back(0);  // the whole text's, known at the end
  }

  Result<std::shared_ptr<const Pda>> compose() {
    const std::optional<JsonId> root = document_.find(JsonDocument::kRoot, "root");
    if (!root) return wrong(JsonDocument::kRoot, "has no root");
    if (const auto markers = document_.find(JsonDocument::kRoot, "markers")) {
      pda_->markers = TRY(texts(*markers));
    }
    const ExprId expr = TRY(node(*root, 0));
    const CharDfa whole = TRY(compile(pool_, expr, false, budget_));
    if (whole.empty()) return invalid_argument("composed grammar: it matches no text");
    const std::vector<StateId> states = emit(whole, Spelling::plain, 0, *pda_);
    for (size_t s = 0; s < states.size(); ++s) {
      pda_->states[states[s]].accepts = whole.states[s].label != 0;
    }
    pda_->rules[0] = states[0];
    const std::vector<std::string> names(pda_->rules.size(), "a part of the composed grammar");
    TRY(finish(*pda_, names));
    return std::shared_ptr<const Pda>(std::move(pda_));
  }

 private:
  Status wrong(JsonId id, std::string_view what) const {
    return invalid_argument(fmt::format("composed grammar at {}: {}", document_.path(id), what));
  }

  Result<ExprId> node(JsonId id, int depth) {
    if (depth > kDepthMax) return wrong(id, "nests too deeply");
    const JsonValue& value = document_.at(id);
    if (value.kind == JsonValue::Kind::string) return literal(value.text);
    if (value.kind != JsonValue::Kind::object) return wrong(id, "is neither text nor object");
    if (const auto schema = document_.find(id, "schema")) return schema_call(id, *schema);
    if (const auto free = document_.find(id, "free")) return free_text(id, *free);
    if (const auto list = document_.find(id, "sequence")) {
      return pool_.sequence(TRY(nodes(*list, depth)));
    }
    if (const auto list = document_.find(id, "choice")) {
      return pool_.choice(TRY(nodes(*list, depth)));
    }
    if (const auto repeated = document_.find(id, "repeat")) {
      const uint32_t min = TRY(number(document_.find(id, "min")));
      return pool_.repeat(TRY(node(*repeated, depth + 1)), min, kUnbounded);
    }
    return wrong(id, "is no node that is known");
  }

  Result<std::vector<ExprId>> nodes(JsonId list, int depth) {
    if (document_.at(list).kind != JsonValue::Kind::array) return wrong(list, "is no list");
    std::vector<ExprId> exprs;
    for (const JsonId child : document_.at(list).children) {
      const ExprId expr = TRY(node(child, depth + 1));
      exprs.push_back(expr);
    }
    return exprs;
  }

  // 0 to 9; 0 where there is none.
  Result<uint32_t> number(std::optional<JsonId> id) const {
    if (!id) return uint32_t{0};
    const std::string& text = document_.at(*id).text;
    const bool is_digit = document_.at(*id).kind == JsonValue::Kind::number && text.size() == 1;
    if (!is_digit) return wrong(*id, "is no number from 0 to 9");
    return static_cast<uint32_t>(text[0] - '0');
  }

  Result<std::vector<std::string>> texts(JsonId list) const {
    if (document_.at(list).kind != JsonValue::Kind::array) return wrong(list, "is no list");
    std::vector<std::string> found;
    for (const JsonId child : document_.at(list).children) {
      const JsonValue& value = document_.at(child);
      if (value.kind != JsonValue::Kind::string || value.text.empty()) {
        return wrong(child, "is no text, or an empty one");
      }
      found.push_back(value.text);
    }
    return found;
  }

  ExprId literal(std::string_view text) {
    std::vector<ExprId> letters;
    for (size_t offset = 0; offset < text.size();) {
      const DecodedCharacter next = decode_utf8(text, offset);  // JSON's strings are UTF-8
      letters.push_back(pool_.chars(CodeSet::of(next.code_point)));
      offset += next.length;
    }
    return pool_.sequence(std::move(letters));
  }

  Result<ExprId> schema_call(JsonId id, JsonId schema) {
    const JsonValue& value = document_.at(schema);
    if (value.kind != JsonValue::Kind::string) return wrong(schema, "is no text");
    const auto [entry, is_new] = schemas_.try_emplace(value.text, 0);
    if (is_new) {
      auto part = compile_schema(value.text, Strictness::generation, budget_);
      const auto name = document_.find(id, "name");
      if (!part.ok() && name) {
        return part.status().with_context(printable(document_.at(*name).text));
      }
      entry->second = append(*pda_, *TRY(std::move(part)));
    }
    return pool_.call(entry->second);
  }

  // Any text without those that stand or begin there.
  Result<ExprId> free_text(JsonId id, JsonId free) {
    CharDfa dfa = any_text();
    if (const std::vector<std::string> inside = TRY(texts(free)); !inside.empty()) {
      const CharDfa holding = TRY(compile(pool_, any_of(inside), true, budget_));
      dfa = TRY(difference(dfa, holding, budget_));
    }
    if (const auto begins = document_.find(id, "begins")) {
      const std::vector<std::string> first = TRY(texts(*begins));
      const ExprId rest = pool_.repeat(pool_.chars(CodeSet::all()), 0, kUnbounded);
      const CharDfa beginning =
          TRY(compile(pool_, pool_.sequence({any_of(first), rest}), false, budget_));
      dfa = TRY(difference(dfa, beginning, budget_));
    }
    return pool_.automaton(std::move(dfa));
  }

  ExprId any_of(const std::vector<std::string>& list) {
    std::vector<ExprId> alternatives;
    for (const std::string& text : list) alternatives.push_back(literal(text));
    return pool_.choice(std::move(alternatives));
  }

  const JsonDocument& document_;
  ExprPool pool_;
  Budget budget_;
  std::shared_ptr<Pda> pda_ = std::make_shared<Pda>();
  std::map<std::string, RuleId> schemas_;
};

}  // namespace

Result<std::shared_ptr<const Pda>> compile_composed(std::string_view text) {
  const JsonDocument document = TRY(JsonDocument::parse(text, "composed grammar"));
  return Composer(document).compose();
}

}  // namespace strata::grammar
