// LineReader: what a person types at a terminal or a pipe gives, one question after the other.
//
// At a terminal it is the line editor (line_editor.h); what a pipe or a file gives is cut at its
// line breaks, whatever their distance.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/base/file_descriptor.h"

namespace strata::cli {

// Standard input, as bytes, for one thread that another may wake.
class WakeableInput {
 public:
  WakeableInput();

  // The next bytes into `bytes`, appended. False at the end of input, on an error, or after wake().
  bool read(std::string& bytes);
  // read() returns false from now on. Threads: any; also from a signal's thread.
  void wake();

 private:
  FileDescriptor wake_from_;
  FileDescriptor wake_to_;
};

// Threads: one, but for wake().
class LineReader {
 public:
  virtual ~LineReader() = default;

  // The next line without its end; none at the end of input or after wake(). `prompt` stands before
  // the cursor where a person types.
  virtual std::optional<std::string> next(const std::string& prompt) = 0;
  void wake() { input_.wake(); }

 protected:
  WakeableInput input_;
};

// Lines of a pipe or a file.
class PlainLines final : public LineReader {
 public:
  std::optional<std::string> next(const std::string& prompt) override;

 private:
  std::string held_;
  size_t searched_ = 0;  // so many bytes of it hold no line break
};

}  // namespace strata::cli
