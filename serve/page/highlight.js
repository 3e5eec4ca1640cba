// Colours in code: comments, strings, numbers and words that many languages share. No grammar of any
// language, but enough to find one's way.

const highlight = (() => {
  const HASH_COMMENTS = new Set(("python py sh bash shell zsh console ruby rb yaml yml toml perl r make " +
    "makefile cmake dockerfile ini nix elixir").split(" "));
  const DASH_COMMENTS = new Set(["sql", "lua", "haskell", "hs", "ada", "vhdl"]);
  const PLAIN = new Set(["", "text", "txt", "plain", "output", "markdown", "md", "diff", "csv", "log"]);
  const WORDS = new Set((
    "abstract and as assert async await break case catch class const constexpr continue def " +
    "default defer del delete do elif else end enum except export extends extern false " +
    "False final finally fn for from func function goto if impl implements import in inline " +
    "instanceof interface internal is lambda let loop match mod module mut namespace new " +
    "nil None nonlocal not null nullptr operator or override package pass private protected " +
    "pub public raise readonly ref return self sealed static struct super switch template " +
    "then this throw throws trait true True try type typedef typename typeof undefined " +
    "union unless unsafe use using var virtual void volatile when where while with yield " +
    "auto bool char double float int long short signed unsigned string select insert update " +
    "create table into values join on group by order limit set SELECT INSERT UPDATE DELETE " +
    "CREATE TABLE FROM WHERE JOIN LEFT RIGHT INNER OUTER ON GROUP BY ORDER LIMIT INTO " +
    "VALUES AND OR NOT NULL AS SET").split(" "));
  // Beyond this colours cost more time than they give.
  const LENGTH_MAX = 60000;

  function patternFor(language) {
    const comments = HASH_COMMENTS.has(language) ? "#[^\\n]*"
      : DASH_COMMENTS.has(language) ? "--[^\\n]*"
      : language === "html" || language === "xml" || language === "svg" ? "<!--[\\s\\S]*?(?:-->|$)"
      : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|$)";
    const raw = String.raw;
    const strings = raw`"""[\s\S]*?(?:"""|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'` +
      "|`(?:\\\\.|[^`\\\\])*`?";
    const numbers = raw`\b(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\w*`;
    return new RegExp(raw`(${comments})|(${strings})|(${numbers})|([A-Za-z_]\w*)`, "g");
  }

  // The parts of `text`, each {text, kind}; kind null: no colour. None is empty, and of two neighbours
  // one has a colour.
  return function highlight(text, language) {
    language = language.toLowerCase();
    if (PLAIN.has(language) || text.length > LENGTH_MAX) return text ? [{ text, kind: null }] : [];
    const parts = [];
    let at = 0;
    for (const match of text.matchAll(patternFor(language))) {
      const kind = match[1] !== undefined ? "comment" : match[2] !== undefined ? "string"
        : match[3] !== undefined ? "number" : WORDS.has(match[4]) ? "word" : null;
      if (!kind) continue;
      if (match.index > at) parts.push({ text: text.slice(at, match.index), kind: null });
      parts.push({ text: match[0], kind });
      at = match.index + match[0].length;
    }
    if (at < text.length) parts.push({ text: text.slice(at), kind: null });
    return parts;
  };
})();
