// What stands behind a dot and in brackets: attributes, methods, elements, slices.
//
// As in transformers' sandbox, lists and dictionaries cannot be changed: append(), update() and
// their like are refused.
//
// Threads: free functions, any thread.
#pragma once

#include <string_view>

#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

using MethodFunction = Result<Value> (*)(Runtime& runtime, const Value& self,
                                         CallArguments& arguments);

// object.name: the attribute or method, else the element; undefined if there is neither.
// Errors: for an undefined object.
Result<Value> get_attribute(Runtime& runtime, const Value& object, std::string_view name);
// object[key]: the element, else the attribute of that name; undefined if there is neither.
Result<Value> get_item(Runtime& runtime, const Value& object, const Value& key);
// object[begin:end:step], each None where left out.
Result<Value> get_slice(Runtime& runtime, const Value& object, const Value& begin, const Value& end,
                        const Value& step);
// The attribute only, as the filter `attr` asks; undefined if there is none.
Result<Value> get_attribute_only(Runtime& runtime, const Value& object, std::string_view name);

// Null if the type has no such method.
MethodFunction find_string_method(std::string_view name);
MethodFunction find_container_method(Value::Kind kind, std::string_view name);

// A method of that value, to be called later.
Value bound_method(Runtime& runtime, const Value& self, std::string_view name,
                   MethodFunction function);

}  // namespace strata::jinja
