#include "runtime/grammar/matcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace strata::grammar {

Matcher::Matcher(std::shared_ptr<StateSpace> space)
    : space_(std::move(space)), situation_(space_->start()), failure_(space_->failure()) {}

bool Matcher::accept_byte(uint8_t byte) {
  const SituationId next = space_->step(situation_, byte);
  if (next == kDead) {
    failure_ = space_->failure();
    return false;
  }
  if (space_->pda().tracks_keys && !keys_.accept(byte)) {
    failure_ = invalid_argument("the object already has a member of this name");
    return false;
  }
  situation_ = next;
  return true;
}

bool Matcher::accept(std::string_view bytes) {
  const SituationId before = situation_;
  const KeyTracker keys_before = keys_;
  if (accept_some(bytes) == bytes.size()) return true;
  situation_ = before;
  keys_ = keys_before;
  return false;
}

size_t Matcher::accept_some(std::string_view bytes) {
  if (situation_ == kDead) return 0;  // from the start, and failure_ says why
  failure_ = ok_status();
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!accept_byte(static_cast<uint8_t>(bytes[i]))) return i;
  }
  return bytes.size();
}

bool Matcher::can_end_name() const {
  if (!space_->pda().tracks_keys || !keys_.awaits_another_name()) return true;
  // Depth first, the quote that may end the name before all other bytes.
  struct Place {
    Matcher at;
    int next = 0;  // 0: the quote; 1 + byte
  };
  constexpr int kPlacesMax = 4000;
  std::vector<Place> path;
  path.push_back({*this});
  for (int places = 0; !path.empty();) {
    Place& place = path.back();
    const int index = place.next++;
    if (index > 256) {
      path.pop_back();
      continue;
    }
    const auto byte = static_cast<uint8_t>(index == 0 ? '"' : index - 1);
    // Outside of the name nothing but its first quote leads to one.
    if (index > 0 && (byte == '"' || !place.at.keys_.in_name())) continue;
    const SituationId next = space_->step(place.at.situation_, byte);
    if (next == kDead && !space_->failure().ok()) return true;
    if (next == kDead) continue;
    Matcher ahead = place.at;
    if (!ahead.keys_.accept(byte)) continue;  // a name that the object has
    ahead.situation_ = next;
    if (place.at.keys_.in_name() && !ahead.keys_.in_name()) return true;
    if (++places > kPlacesMax) return true;
    path.push_back({std::move(ahead)});
  }
  return false;
}

std::string Matcher::forced_bytes(size_t bytes_max) const {
  std::string forced;
  SituationId at = situation_;
  while (forced.size() < bytes_max && !space_->ends(at)) {
    const std::vector<bool> next = space_->next_bytes(at);
    if (std::count(next.begin(), next.end(), true) != 1) break;
    const auto byte =
        static_cast<uint8_t>(std::find(next.begin(), next.end(), true) - next.begin());
    at = space_->step(at, byte);
    if (at == kDead) break;
    forced += static_cast<char>(byte);
  }
  return forced;
}

std::string Matcher::expected() const {
  std::vector<bool> next = space_->next_bytes(situation_);
  std::vector<std::string> parts;
  const auto take = [&](unsigned first, unsigned last, const char* name) {
    if (!std::all_of(next.begin() + first, next.begin() + last + 1, [](bool b) { return b; }))
      return;
    std::fill(next.begin() + first, next.begin() + last + 1, false);
    parts.emplace_back(name);
  };
  take('a', 'z', "a small letter");
  take('A', 'Z', "a capital letter");
  take('0', '9', "a digit");
  take('1', '9', "a digit from 1 to 9");
  const bool beyond = std::any_of(next.begin() + 0x80, next.end(), [](bool b) { return b; });
  constexpr size_t kPartsMax = 12;
  for (unsigned byte = 0; byte < 0x80 && parts.size() < kPartsMax; ++byte) {
    if (!next[byte]) continue;
    if (byte == ' ')
      parts.emplace_back("a space");
    else if (byte == '\n')
      parts.emplace_back("a line end");
    else if (byte == '\t' || byte == '\r')
      continue;
    else if (byte < 0x20 || byte == 0x7F)
      parts.push_back(fmt::format("byte {:#04x}", byte));
    else
      parts.push_back(fmt::format("'{}'", static_cast<char>(byte)));
  }
  if (parts.size() >= kPartsMax) parts.emplace_back("others");
  if (beyond) parts.emplace_back("a character beyond ASCII");
  if (can_end()) parts.emplace_back("the end");
  if (parts.empty()) return "nothing";
  std::string text = parts[0];
  for (size_t i = 1; i < parts.size(); ++i)
    text += (i + 1 < parts.size() ? ", " : " or ") + parts[i];
  return text;
}

void Matcher::move_to(std::shared_ptr<StateSpace> space) {
  situation_ = space->adopt(situation_, *space_);
  space_ = std::move(space);
  if (situation_ == kDead && failure_.ok()) failure_ = space_->failure();
}

}  // namespace strata::grammar
