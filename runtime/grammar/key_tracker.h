// KeyTracker: refuses a member whose name its object already has.
//
// The automaton's registers know names that the schema lists; names that the schema does not know
// before are kept here, beside the automaton: in JSON, what is open and where names stand does not
// depend on how the schema is read. Names are compared as what they say ("\u0061" is "a").
//
// Threads: plain value; copies share what is equal until one of them changes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace strata::grammar {

class KeyTracker {
 public:
  // False, with nothing changed: the byte ends a name that came before. Requires: the bytes so far
  // begin a JSON text.
  bool accept(uint8_t byte);

  bool in_name() const { return in_name_; }
  // In a name, or before one, of an object that has others.
  bool awaits_another_name() const;

 private:
  struct Level {
    bool is_object = false;
    std::vector<std::string> names;
  };
  using Levels = std::vector<Level>;

  Levels& own_levels();
  bool is_known(const std::string& name) const;

  std::shared_ptr<Levels> levels_ = std::make_shared<Levels>();
  bool expects_name_ = false;  // a string here is a name
  bool in_string_ = false;
  bool in_name_ = false;
  bool escaped_ = false;
  std::string name_;  // as written, while in one
};

}  // namespace strata::grammar
