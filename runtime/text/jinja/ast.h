// The syntax tree of a template.
//
// Nodes are plain data; parser.h builds them, evaluator.h walks them. Heights are bounded by the
// parser, so recursion over a tree, its destructor's too, is no danger to the stack.
//
// Threads: immutable once parsed; any thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/value.h"

namespace strata::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind : uint8_t {
  constant,     // value
  name,         // name
  tuple,        // children
  list,         // children
  dict,         // children: key, value, key, value ...
  attribute,    // children[0].name
  item,         // children[0][children[1]]
  slice,        // children: begin, end, step; null where left out. Only as an item's key
  call,         // children[0](arguments)
  filter,       // children[0] | name(arguments); children[0] null inside a filter block
  test,         // children[0] is name(arguments)
  binary,       // children[0] operation children[1]: arithmetic, "and", "or"
  unary,        // operation children[0]: "-", "+", "not"
  compare,      // children[0] comparisons[0] children[1] comparisons[1] children[2] ...
  concat,       // children joined by ~
  conditional,  // children[0] if children[1] else children[2], which may be null
};

enum class Operation : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  logical_and,
  logical_or,
  logical_not,
  negate,
  plus,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *args
  ExpressionPtr more_named;       // **kwargs
};

struct Expression {
  ExpressionKind kind;
  Position position;
  uint32_t height = 1;
  Operation operation{};
  Value value;  // no object of a heap
  std::string name;
  std::vector<ExpressionPtr> children;
  std::vector<Operation> comparisons;
  std::unique_ptr<Arguments> arguments;
};

// What an assignment writes to: a name, an attribute of a namespace, or several of these.
struct Target {
  Position position;
  std::string name;
  std::string attribute;  // not empty: name.attribute
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind : uint8_t {
  data,          // text
  output,        // expressions[0], ...
  if_,           // expressions[i] guards bodies[i]; one more body is the else's
  for_,          // target, expressions[0] in, expressions[1] if (may be null); bodies[0], else [1]
  set,           // target = expressions[0]
  set_block,     // target = bodies[0], through expressions[0] (a filter chain) if not null
  macro,         // macro
  call_block,    // macro is the caller; expressions[0] the call
  filter_block,  // expressions[0] applied to bodies[0]
  with,          // targets = expressions; bodies[0]
  block,         // bodies[0] in a scope of the template's top level
  scope,         // bodies[0] in a scope of its own
  break_,
  continue_,
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
  // The body names them, so the macro takes more arguments than its parameters.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Statement {
  StatementKind kind;
  Position position;
  TextRef text;
  std::vector<ExpressionPtr> expressions;
  std::vector<Body> bodies;
  std::vector<Target> targets;
  std::unique_ptr<Macro> macro;
  bool recursive = false;  // for: loop(...) renders the body again
  bool uses_loop = false;  // for: the body names `loop`
};

}  // namespace strata::jinja
