#include "runtime/text/chat_families.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

namespace strata {
namespace {

struct Known {
  std::vector<std::string_view> markers;  // all of them are in the vocabulary
  ChatFamily family;
};

constexpr std::string_view kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// The system message stands before the first user's words; turns alternate.
constexpr std::string_view kGemma =
    "{{ bos_token }}{% set ns = namespace(system='') %}"
    "{% if messages[0].role == 'system' %}{% set ns.system = messages[0].content + '\\n\\n' %}"
    "{% set messages = messages[1:] %}{% endif %}"
    "{% if not messages %}{{ raise_exception('a user message is missing') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate between user and assistant') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' }}"
    "{{ (ns.system if loop.first else '') + m.content | trim }}{{ '<end_of_turn>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

constexpr std::string_view kLlama3 =
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + "
    "'<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

constexpr std::string_view kLlama2 =
    "{% set ns = namespace(system='') %}{% if messages[0].role == 'system' %}"
    "{% set ns.system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}"
    "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}"
    "{% if m.role == 'assistant' %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% else %}"
    "{{ bos_token + '[INST] ' + (ns.system if loop.first else '') + m.content | trim + ' [/INST]' "
    "}}"
    "{% endif %}{% endfor %}";

// The system message stands before the last user's words.
constexpr std::string_view kMistral =
    "{{ bos_token }}{% set ns = namespace(system='') %}{% if messages[0].role == 'system' %}"
    "{% set ns.system = messages[0].content + '\\n\\n' %}{% set messages = messages[1:] %}"
    "{% endif %}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ m.content + eos_token }}{% else %}"
    "{{ '[INST]' + (ns.system if loop.last else '') + m.content + '[/INST]' }}"
    "{% endif %}{% endfor %}";

constexpr std::string_view kPhi3 =
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

constexpr std::string_view kPhi4 =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}";

constexpr std::string_view kCommandR =
    "{{ bos_token }}{% set names = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} %}"
    "{% for m in messages %}{{ '<|START_OF_TURN_TOKEN|><|' + names.get(m.role, 'USER') + "
    "'_TOKEN|>' + m.content | trim + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}";

constexpr std::string_view kDeepSeek =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ '<｜Assistant｜>' + m.content + eos_token }}{% elif m.role == 'system' %}{{ m.content }}"
    "{% else %}{{ '<｜User｜>' + m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}";

constexpr std::string_view kGptOss =
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{% else %}"
    "{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}";

constexpr std::string_view kGlm4 =
    "[gMASK]<sop>{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

constexpr std::string_view kGranite =
    "{% for m in messages %}{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + "
    "'<|end_of_text|>\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}";

// The first whose markers are all there, so the particular ones come before the common.
const std::vector<Known>& families() {
  static const std::vector<Known> known = {
      {{"<|im_start|>", "<|im_sep|>", "<|im_end|>"}, {"phi4", kPhi4}},
      {{"<|im_start|>", "<|im_end|>"}, {"chatml", kChatMl}},
      {{"<start_of_turn>", "<end_of_turn>"}, {"gemma", kGemma}},
      {{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, {"llama3", kLlama3}},
      {{"<|start|>", "<|channel|>", "<|message|>"}, {"gpt-oss", kGptOss}},
      {{"<｜User｜>", "<｜Assistant｜>"}, {"deepseek", kDeepSeek}},
      {{"<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"}, {"command-r", kCommandR}},
      {{"<|start_of_role|>", "<|end_of_role|>"}, {"granite", kGranite}},
      {{"[gMASK]", "<sop>", "<|user|>"}, {"glm4", kGlm4}},
      {{"<|user|>", "<|assistant|>", "<|end|>"}, {"phi3", kPhi3}},
      {{"[INST]", "[/INST]"}, {"mistral", kMistral}},
  };
  return known;
}

constexpr ChatFamily kLlama2Family = {"llama2", kLlama2};

}  // namespace

const ChatFamily* chat_family_of(const Vocab& vocab, std::string_view model_name) {
  for (const Known& known : families()) {
    const bool all = std::all_of(known.markers.begin(), known.markers.end(),
                                 [&](std::string_view marker) { return vocab.find(marker) >= 0; });
    if (all) return &known.family;
  }
  std::string name(model_name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool is_chat =
      name.find("chat") != std::string::npos || name.find("instruct") != std::string::npos;
  return vocab.kind() == VocabKind::spm && is_chat ? &kLlama2Family : nullptr;
}

}  // namespace strata
