#include "runtime/grammar/formats.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "runtime/base/utf8.h"
#include "runtime/grammar/regex.h"

namespace strata::grammar {
namespace {

// Days by month, and 29 February in leap years only.
constexpr std::string_view kLeapYear =
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[048]|[2468][048]|[13579][26])00)";

std::string date() {
  return fmt::format(
      "(?:[0-9]{{4}}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
      "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{}-02-29)",
      kLeapYear);
}

std::string time() {
  return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
         "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
}

std::string ipv4() {
  return "(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}"
         "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
}

// RFC 4291 section 2.2: eight groups; or fewer around one "::"; the last two may be an IPv4
// address.
std::string ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last = "(?:" + group + ":" + group + "|" + ipv4() + ")";
  std::string result = "(?:" + group + ":){6}" + last;
  for (int before = 0; before <= 5; ++before) {
    // `before` groups at most, "::", then 5 - before groups and the last two.
    const std::string head =
        before == 0 ? "" : fmt::format("(?:(?:{0}:){{0,{1}}}{0})?", group, before - 1);
    result += fmt::format("|{}::(?:{}:){{{}}}{}", head, group, 5 - before, last);
  }
  result += fmt::format("|(?:(?:{0}:){{0,5}}{0})?::{0}", group);
  result += fmt::format("|(?:(?:{0}:){{0,6}}{0})?::", group);
  return "(?:" + result + ")";
}

std::string hostname() {
  // The whole is 253 letters at most; that is checked by the label count and length only.
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return label + "(?:\\." + label + "){0,8}";
}

std::string uri(bool reference) {
  const std::string encoded = "%[0-9A-Fa-f]{2}";
  const std::string letter = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" + encoded + ")";
  const std::string user = "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" + encoded + ")*@)?";
  const std::string name = "(?:[A-Za-z0-9._~!$&'()*+,;=-]|" + encoded + ")*";
  const std::string authority = user + "(?:" + name + "|\\[" + ipv6() + "\\])(?::[0-9]{0,5})?";
  const std::string tail = "(?:\\?(?:" + letter + "|[/?])*)?(?:#(?:" + letter + "|[/?])*)?";
  const std::string segments = "(?:/" + letter + "*)*";
  const std::string rootless = letter + "+" + segments;
  const std::string hierarchy =
      "(?://" + authority + segments + "|/(?:" + rootless + ")?|" + rootless + "|)";
  const std::string absolute = "[A-Za-z][A-Za-z0-9+.-]*:" + hierarchy + tail;
  if (!reference) return absolute;
  const std::string no_colon = "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" + encoded + ")+" + segments;
  return "(?:" + absolute + "|(?://" + authority + segments + "|/(?:" + rootless + ")?|" +
         no_colon + "|)" + tail + ")";
}

std::string email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  return atom + "(?:\\." + atom + ")*@" + hostname();
}

std::string duration() {
  const std::string clock = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const std::string days = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
  return "P(?:" + days + "(?:" + clock + ")?|" + clock + "|[0-9]+W)";
}

std::string regex_of(std::string_view format) {
  if (format == "date") return date();
  if (format == "time") return time();
  if (format == "date-time") return date() + "[Tt]" + time();
  if (format == "duration") return duration();
  if (format == "uuid") return "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
  if (format == "ipv4") return ipv4();
  if (format == "ipv6") return ipv6();
  if (format == "hostname") return hostname();
  if (format == "email") return email();
  if (format == "uri") return uri(false);
  if (format == "uri-reference") return uri(true);
  if (format == "json-pointer") return "(?:/(?:[^/~]|~[01])*)*";
  if (format == "relative-json-pointer") return "(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^/~]|~[01])*)*)";
  return "";
}

}  // namespace

Result<CharDfa> format_dfa(std::string_view format, Budget& budget) {
  const std::string regex = regex_of(format);
  if (regex.empty()) {
    return unimplemented(
        fmt::format("the format '{}' is not supported", printable(format)),
        "date, time, date-time, duration, uuid, ipv4, ipv6, hostname, email, uri, uri-reference, "
        "json-pointer and relative-json-pointer are; or write a pattern");
  }
  return regex_dfa(regex, false, budget).with_context(format);
}

}  // namespace strata::grammar
