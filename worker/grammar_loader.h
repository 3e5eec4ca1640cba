// GrammarLoader: the grammars of a tail's sequences, compiled on a thread of its own.
//
//   prepare(spec) when a sequence is opened -> loader thread: tokenizer's vocabulary (once),
//   automaton start(spec) at its first sample         -> a constraint, or "not yet"
//
// Compiling takes up to a second and the vocabulary a few hundred milliseconds: the stage thread,
// where all sequences of the stage wait, does not wait for either.
//
// Threads: externally synchronised (the stage thread), as are the constraints.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/base/work_thread.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/grammar/constraint.h"

namespace strata::worker {

class GrammarLoader {
 public:
  // `tokenizer_file`: may be null, then there are no grammars.
  explicit GrammarLoader(std::shared_ptr<const GgufFile> tokenizer_file);
  ~GrammarLoader();

  // Begins to compile, unless the grammar is known or under way.
  void prepare(const GrammarSpec& spec);
  // A constraint at the beginning of an answer; none while the grammar is being compiled. Errors:
  // those of compile_grammar() and of the tokenizer; FAILED_PRECONDITION without a tokenizer.
  Result<std::optional<grammar::Constraint>> start(const GrammarSpec& spec);

 private:
  struct Job;
  using Jobs = std::list<std::shared_ptr<Job>>;

  Jobs::iterator find_job(const GrammarSpec& spec);
  // The oldest that nobody has fetched for a while. False if there is none.
  bool drop_unwanted_job();
  void compile(Job& job);

  const std::shared_ptr<const GgufFile> tokenizer_file_;
  std::optional<grammar::GrammarCache> cache_;             // from the first grammar on
  Jobs jobs_;                                              // not in the cache yet, oldest first
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // loader thread only
  std::optional<WorkThread> thread_;  // last, so that it ends first; from the first grammar on
};

}  // namespace strata::worker
