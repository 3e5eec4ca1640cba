#include "runtime/text/answer/channel_parser.h"

#include <algorithm>

namespace strata {
namespace {

constexpr std::string_view kRecipient = "to=functions.";
// A header is a few words; what is longer is an answer without headers.
constexpr size_t kHeaderBytesMax = 300;

}  // namespace

ChannelParser::ChannelParser(bool parse_calls) : parse_calls_(parse_calls) { enter_header(); }

void ChannelParser::enter_header() {
  in_header_ = true;
  header_.clear();
}

void ChannelParser::enter_body(DeltaSink& sink) {
  in_header_ = false;
  matcher_ = StopMatcher::create(
                 std::vector<std::string>{"<|end|>", "<|call|>", "<|return|>", "<|start|>"})
                 .value();
  const size_t recipient = header_.find(kRecipient);
  std::string name;
  if (recipient != std::string::npos) {
    const size_t begin = recipient + kRecipient.size();
    name = header_.substr(begin, header_.find_first_of(" <\n", begin) - begin);
  }
  if (!name.empty() && parse_calls_) {
    body_ = Body::call;
    writer_ = ArgumentsWriter();
    sink.call(name);
  } else if (header_.find("<|channel|>analysis") != std::string::npos) {
    body_ = Body::reasoning;
  } else {
    body_ = Body::content;
  }
}

void ChannelParser::put(std::string_view text, DeltaSink& sink) {
  switch (body_) {
    case Body::reasoning:
      sink.reasoning(text);
      break;
    case Body::content:
      sink.content(text);
      break;
    case Body::call:
      for (const char byte : text) writer_.feed(byte, sink);
  }
}

void ChannelParser::feed(char byte, DeltaSink& sink) {
  if (in_header_) {
    header_ += byte;
    if (header_.ends_with("<|message|>")) {
      enter_body(sink);
    } else if (header_.size() > kHeaderBytesMax) {
      // No header: the model answers in plain text.
      const std::string text = std::exchange(header_, {});
      enter_body(sink);
      put(matcher_->push(text), sink);
    }
    return;
  }
  put(matcher_->push(std::string_view(&byte, 1)), sink);
  if (!matcher_->stopped()) return;
  if (body_ == Body::call) writer_.end_call(sink);
  enter_header();
}

void ChannelParser::finish(DeltaSink& sink) {
  if (in_header_) {
    // An answer that never got to a message is content, unless it is the beginning of a header.
    if (!header_.empty() && header_.find("<|") == std::string::npos && header_ != "assistant") {
      sink.content(header_);
    }
    return;
  }
  put(matcher_->flush(), sink);
}

}  // namespace strata
