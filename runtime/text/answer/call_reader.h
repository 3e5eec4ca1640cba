// Readers of one tool call, or of a run of them, in the syntax of a family.
//
// Threads: externally synchronised.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/text/answer/delta_sink.h"
#include "runtime/text/answer/json_scanner.h"

namespace strata {

// Passes an arguments value on as its bytes come; joined, they are one JSON value, or the beginning
// of one where the model broke off.
class ArgumentsWriter {
 public:
  // False: the byte belongs to no JSON here, and nothing is written from now on.
  bool feed(char byte, DeltaSink& sink);
  // The value is whole, or spoiled.
  bool is_done() const { return done_; }
  // The model has ended the call itself: one without arguments has {}, as readers expect.
  void end_call(DeltaSink& sink);

 private:
  JsonScanner scanner_;
  bool begun_ = false;
  bool done_ = false;
};

class CallReader {
 public:
  enum class Step : uint8_t {
    more,
    done,    // the byte ended the calls
    ended,   // they had ended before this byte, which is not taken
    failed,  // this is no call; raw() is content, with the byte
  };
  virtual ~CallReader() = default;

  virtual Step feed(char byte, DeltaSink& sink) = 0;
  // The answer ends here; a call that was begun stays as far as it was written. False: it was no
  // call, raw() is content.
  virtual bool finish(DeltaSink& sink) = 0;
  // What was read and not passed on as a call.
  const std::string& raw() const { return raw_; }

 protected:
  std::string raw_;
};

// {"name": ..., "arguments": ...}, or a list of them. Keys in any order; "parameters" and a nested
// "function" object are known too. `end`: the marker behind it, if any. `known_names`: where not
// empty, other names make it no call.
std::unique_ptr<CallReader> json_call_reader(std::string end, std::vector<std::string> known_names);
// NAME[ARGS]{...} after [TOOL_CALLS], or a list as above.
std::unique_ptr<CallReader> mistral_call_reader();
// What stands between DeepSeek's markers for all calls of a turn.
std::unique_ptr<CallReader> deepseek_call_reader();
// <function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>.
std::unique_ptr<CallReader> xml_call_reader(std::string end, const AnswerOptions& options);

}  // namespace strata
