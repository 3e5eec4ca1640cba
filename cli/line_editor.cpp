#include "cli/line_editor.h"

#include <histedit.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "runtime/text/unicode.h"

namespace strata::cli {
namespace {

constexpr int kHistoryEntries = 1000;
// A longer question is not worth a place in the history: it was pasted, and comes from somewhere.
constexpr size_t kHistoryEntryBytes = 16 << 10;

// What a terminal sends around pasted text once it was asked to (xterm's "bracketed paste mode").
constexpr const char* kPasteOn = "\x1b[?2004h";
constexpr const char* kPasteOff = "\x1b[?2004l";
constexpr const char* kPasteBegin = "\x1b[200~";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
struct EndEditor {
  void operator()(EditLine* editor) const { ::el_end(editor); }
};
struct EndHistory {
  void operator()(HistoryW* history) const { ::history_wend(history); }
};

// libedit asks the locale how wide a character is and how it is written. This thread's is UTF-8
// while it lives; the process's stays "C".
class Utf8Locale {
 public:
  Utf8Locale()
      : locale_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)),
        before_(locale_ == nullptr ? nullptr : ::uselocale(locale_)) {}
  ~Utf8Locale() {
    if (locale_ == nullptr) return;
    ::uselocale(before_);
    ::freelocale(locale_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t locale_;
  locale_t before_;
};

// The prompt with what the terminal obeys and does not show between two \1, as libedit wants it.
std::string with_marks(std::string_view prompt) {
  std::string marked;
  bool is_escape = false;
  for (const char c : prompt) {
    if (c == '\x1b') marked += '\1';
    is_escape = is_escape || c == '\x1b';
    marked += c;
    if (is_escape && c == 'm') {
      marked += '\1';
      is_escape = false;
    }
  }
  return marked;
}

class LineEditor final : public LineReader {
 public:
  explicit LineEditor(LineEditorOptions options);
  std::optional<std::string> next(const std::string& prompt) override;

 private:
  static LineEditor& of(EditLine* editor) {
    void* self = nullptr;
    ::el_wget(editor, EL_CLIENTDATA, &self);
    return *static_cast<LineEditor*>(self);
  }
  static int read_character(EditLine* editor, wchar_t* character);
  static unsigned char take_paste(EditLine* editor, wint_t key);
  static unsigned char break_line(EditLine* editor, wint_t key);
  static char* prompt_text(EditLine* editor) { return of(editor).prompt_.data(); }

  void follow_window();
  void remember(const std::wstring& line);

  const LineEditorOptions options_;
  const Utf8Locale locale_;
  std::unique_ptr<std::FILE, CloseFile> terminal_;  // if the echo does not go to standard output
  std::unique_ptr<HistoryW, EndHistory> history_{::history_winit()};
  std::unique_ptr<EditLine, EndEditor> editor_;
  std::FILE* echo_ = stdout;
  bool knows_paste_ = false;
  std::string prompt_;
  std::string held_;  // bytes that were read and not yet taken
  winsize window_{};
};

LineEditor::LineEditor(LineEditorOptions options) : options_(std::move(options)) {
  if (options_.keep_stdout_clean || ::isatty(STDOUT_FILENO) == 0) {
    terminal_.reset(std::fopen("/dev/tty", "we"));
    echo_ = terminal_ ? terminal_.get() : stderr;
  }
  editor_.reset(::el_init("strata", stdin, echo_, stderr));
  EditLine* const editor = editor_.get();
  ::el_wset(editor, EL_CLIENTDATA, this);
  ::el_wset(editor, EL_EDITOR, L"emacs");
  ::el_wset(editor, EL_GETCFN, read_character);
  ::el_set(editor, EL_PROMPT_ESC, prompt_text, '\1');
  ::el_wset(editor, EL_ADDFN, L"strata-paste", L"Take pasted text", take_paste);
  ::el_wset(editor, EL_ADDFN, L"strata-line-break", L"Put a line break", break_line);
  ::el_source(editor, nullptr);
  ::el_set(editor, EL_BIND, kPasteBegin, "strata-paste", nullptr);
  ::el_set(editor, EL_BIND, "\x1b\n", "strata-line-break", nullptr);
  ::el_set(editor, EL_BIND, "\x1b\r", "strata-line-break", nullptr);
  HistEventW event{};
  ::history_w(history_.get(), &event, H_SETSIZE, kHistoryEntries);
  ::history_w(history_.get(), &event, H_SETUNIQUE, 1);
  if (!options_.history_file.empty()) {
    ::history_w(history_.get(), &event, H_LOAD, options_.history_file.c_str());
  }
  ::el_wset(editor, EL_HIST, ::history_w, history_.get());
  const char* name = nullptr;
  ::el_get(editor, EL_TERMINAL, &name);
  knows_paste_ = name != nullptr && std::string_view(name) != "dumb";
  ::ioctl(STDIN_FILENO, TIOCGWINSZ, &window_);
}

// One character for libedit: 1, or 0 at the end of input.
int LineEditor::read_character(EditLine* editor, wchar_t* character) {
  LineEditor& self = of(editor);
  while (self.held_.empty() || may_become_utf8(self.held_)) {
    if (!self.input_.read(self.held_)) return 0;
    // A Ctrl-D that was typed during an answer, when the terminal cuts lines by itself, comes as
    // NUL, which libedit would put into the line.
    std::erase(self.held_, '\0');
    self.follow_window();
  }
  const DecodedCharacter decoded = decode_utf8(self.held_, 0);
  *character = static_cast<wchar_t>(decoded.valid ? decoded.code_point : kReplacementCharacter);
  self.held_.erase(0, decoded.length);
  return 1;
}

unsigned char LineEditor::take_paste(EditLine* editor, wint_t /*key*/) {
  std::wstring text;
  wchar_t character = 0;
  while (!text.ends_with(kPasteEnd)) {
    if (::el_wgetc(editor, &character) != 1) return CC_EOF;
    // Terminals send the Enter key's character for a line break.
    text += character == L'\r' ? L'\n' : character;
  }
  text.resize(text.size() - kPasteEnd.size());
  std::erase_if(text,
                [](wchar_t c) { return (c < L' ' && c != L'\n' && c != L'\t') || c == 0x7F; });
  while (text.ends_with(L'\n')) text.pop_back();  // the question ends where Enter is pressed
  if (!text.empty() && ::el_winsertstr(editor, text.c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

unsigned char LineEditor::break_line(EditLine* editor, wint_t /*key*/) {
  return ::el_winsertstr(editor, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

// A window whose size changed is drawn anew at the next key.
void LineEditor::follow_window() {
  winsize now{};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &now) != 0) return;
  if (now.ws_col == window_.ws_col && now.ws_row == window_.ws_row) return;
  window_ = now;
  ::el_resize(editor_.get());
}

std::optional<std::string> LineEditor::next(const std::string& prompt) {
  prompt_ = with_marks(prompt);
  // Before the prompt is there: who sees it may type anything.
  ::el_set(editor_.get(), EL_PREP_TERM, 1);
  if (knows_paste_) std::fputs(kPasteOn, echo_);
  std::fflush(echo_);
  int count = 0;
  const wchar_t* typed = ::el_wgets(editor_.get(), &count);
  if (knows_paste_) std::fputs(kPasteOff, echo_);
  std::fflush(echo_);
  if (typed == nullptr || count <= 0) return std::nullopt;
  std::wstring line(typed, static_cast<size_t>(count));
  if (line.ends_with(L'\n')) line.pop_back();
  remember(line);
  std::string text;
  for (const wchar_t character : line) append_utf8(static_cast<char32_t>(character), text);
  return text;
}

void LineEditor::remember(const std::wstring& line) {
  if (line.find_first_not_of(L" \t\n") == std::wstring::npos) return;
  if (line.size() > kHistoryEntryBytes / sizeof(wchar_t)) return;
  HistEventW event{};
  ::history_w(history_.get(), &event, H_ENTER, line.c_str());
  if (options_.history_file.empty()) return;
  // libedit writes it for its owner alone; so is the folder. A history that cannot be kept is no
  // reason to stop a conversation.
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::path(options_.history_file).parent_path();
  if (std::filesystem::create_directories(folder, ignored)) ::chmod(folder.c_str(), 0700);
  ::history_w(history_.get(), &event, H_SAVE, options_.history_file.c_str());
}

}  // namespace

std::unique_ptr<LineReader> make_line_reader(const LineEditorOptions& options) {
  if (::isatty(STDIN_FILENO) == 0) return std::make_unique<PlainLines>();
  return std::make_unique<LineEditor>(options);
}

}  // namespace strata::cli
