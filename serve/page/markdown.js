// Markdown to elements: what models write, built by createElement and text nodes only.
//
// Known: headings, paragraphs, lists (nested, numbered, with boxes), tables, quotes, code, rules; in a line
// code, bold, italic, struck out, links. HTML is text. Pictures are links; nothing is fetched. Links
// lead to http and https only. Time is linear in the text, nesting is bounded.
//
// It does not follow CommonMark to the letter: a line end is a line end, four spaces are no code.

const markdown = (() => {
  const NESTING_MAX = 12;
  const OPENERS_MAX = 16;  // runs of * and _ that wait for their other half

  // Each of these takes a time that is linear in the line, whatever stands in it.
  const FENCE = /^( {0,3})(?:(`{3,})([^`]*)|(~{3,})(.*))$/;
  const HEADING = /^ {0,3}(#{1,6})(?=\s|$)(.*)$/;
  const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
  const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:(\s+)(.*)|$)/;
  const QUOTE = /^ {0,3}> ?(.*)$/;
  const DELIMITERS = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

  // --- Blocks: lines to a list of {kind, ...}, each with its `source` ---------------------------

  function blocksOf(lines, nesting) {
    const blocks = [];
    let at = 0;
    while (at < lines.length) {
      if (!lines[at].trim()) { at++; continue; }
      const from = at;
      const block = nesting < NESTING_MAX ? blockAt(lines, at, nesting) : paragraphAt(lines, at, true);
      at = block.end;
      block.source = lines.slice(from, at).join("\n");
      blocks.push(block);
    }
    return blocks;
  }

  function blockAt(lines, at, nesting) {
    const line = lines[at];
    let match;
    if ((match = FENCE.exec(line))) return codeAt(lines, at, match);
    if ((match = HEADING.exec(line))) return headingAt(at, match);
    if (RULE.test(line)) return { kind: "rule", end: at + 1 };
    if (QUOTE.test(line)) return quoteAt(lines, at, nesting);
    if (ITEM.test(line)) return listAt(lines, at, nesting);
    if (isTable(lines, at)) return tableAt(lines, at);
    return paragraphAt(lines, at, false);
  }

  function headingAt(at, [, marks, text]) {
    return { kind: "heading", level: marks.length, text: text.trim().replace(/(^|\s)#+$/, ""), end: at + 1 };
  }

  function codeAt(lines, at, [, indent, ticks, tickInfo, waves, waveInfo]) {
    const fence = ticks || waves;
    const language = (tickInfo ?? waveInfo).trim().split(/\s+/)[0];
    const close = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}\\s*$`);
    const strip = new RegExp(`^ {0,${indent.length}}`);
    const text = [];
    let end = at + 1;
    while (end < lines.length && !close.test(lines[end])) text.push(lines[end++].replace(strip, ""));
    const closed = end < lines.length;
    return { kind: "code", language, text: text.join("\n"), closed, end: closed ? end + 1 : end };
  }

  function quoteAt(lines, at, nesting) {
    const inner = [];
    let end = at;
    for (let match; end < lines.length && (match = QUOTE.exec(lines[end])); end++) inner.push(match[1]);
    return { kind: "quote", blocks: blocksOf(inner, nesting + 1), end };
  }

  // An item goes on with lines that are indented as its text is, or plain lines without a blank before.
  function listAt(lines, at, nesting) {
    const first = ITEM.exec(lines[at]);
    const ordered = /\d/.test(first[2]);
    const base = first[1].length;
    const list = { kind: "list", ordered, start: ordered ? parseInt(first[2], 10) : 1, items: [], end: at };
    while (list.end < lines.length) {
      const match = ITEM.exec(lines[list.end]);
      if (!match || match[1].length > base + 1 || match[1].length < base || RULE.test(lines[list.end])) break;
      if (/\d/.test(match[2]) !== ordered) break;
      list.end = itemAt(lines, list, match, nesting);
    }
    return list;
  }

  function itemAt(lines, list, match, nesting) {
    const width = match[1].length + match[2].length + Math.min(match[3] ? match[3].length : 1, 4);
    const inner = [match[4] || ""];
    let end = list.end + 1;
    let blank = false;
    for (; end < lines.length; end++) {
      const line = lines[end];
      const indent = line.length - line.trimStart().length;
      if (!line.trim()) { blank = true; inner.push(""); continue; }
      // Two spaces are enough for what belongs to "1. ": models are not strict there.
      const belongs = indent >= Math.min(width, match[1].length + 2);
      if (!belongs && (blank || startsBlock(line))) break;
      blank = false;
      inner.push(belongs ? line.slice(Math.min(indent, width)) : line);
    }
    while (end > list.end + 1 && !lines[end - 1].trim()) { end--; inner.pop(); }
    const box = /^\[([ xX])\]\s+/.exec(inner[0]);
    if (box) inner[0] = inner[0].slice(box[0].length);
    list.items.push({ blocks: blocksOf(inner, nesting + 1), box: box ? box[1] !== " " : null });
    // Blank lines between two items belong to the list.
    let next = end;
    while (next < lines.length && !lines[next].trim()) next++;
    return next < lines.length && ITEM.test(lines[next]) && !RULE.test(lines[next]) ? next : end;
  }

  function cellsOf(line) {
    const cells = [];
    let cell = "";
    const text = line.trim().replace(/^\|/, "");
    for (let at = 0; at < text.length; at++) {
      if (text[at] === "\\" && text[at + 1] === "|") { cell += "|"; at++; }
      else if (text[at] === "|") { cells.push(cell.trim()); cell = ""; }
      else cell += text[at];
    }
    if (cell.trim()) cells.push(cell.trim());
    return cells;
  }

  function isTable(lines, at) {
    return lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") &&
      lines[at + 1].length < 1000 && DELIMITERS.test(lines[at + 1]) &&
      cellsOf(lines[at]).length === cellsOf(lines[at + 1]).length;
  }

  function tableAt(lines, at) {
    const head = cellsOf(lines[at]);
    const align = cellsOf(lines[at + 1]).map((cell) =>
      cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left");
    const rows = [];
    let end = at + 2;
    while (end < lines.length && lines[end].includes("|") && lines[end].trim()) rows.push(cellsOf(lines[end++]));
    return { kind: "table", head, align, rows, end };
  }

  function startsBlock(line) {
    return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
  }

  // Numbers other than 1 do not begin a list inside a paragraph: "in\n1989. That" is no list.
  function interrupts(lines, at) {
    const item = ITEM.exec(lines[at]);
    if (item) return !/\d/.test(item[2]) ? Boolean(item[4]) : /^1[.)]$/.test(item[2]);
    return startsBlock(lines[at]) || isTable(lines, at);
  }

  function paragraphAt(lines, at, plain) {
    let end = at + 1;
    while (end < lines.length && lines[end].trim() && (plain || !interrupts(lines, end))) end++;
    return { kind: "paragraph", text: lines.slice(at, end).map((line) => line.trim()).join("\n"), end };
  }

  // --- Inside a line -----------------------------------------------------------------------------
  // A text becomes a list of tokens: {text}, {code}, {link, children} or a run of delimiters, which
  // are matched afterwards as CommonMark does it, in one walk.

  const SPECIAL = /[\\`*_~[\]!<\n]|https?:\/\//gi;
  const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;

  function inline(text) {
    const state = { text, tokens: [], brackets: [], noCode: new Set(), nesting: 0 };
    let at = 0;
    while (at < text.length) {
      SPECIAL.lastIndex = at;
      const match = SPECIAL.exec(text);
      const next = match ? match.index : text.length;
      if (next > at) state.tokens.push({ text: text.slice(at, next) });
      at = next < text.length ? special(state, next) : next;
    }
    matchDelimiters(state.tokens, 0);
    return state.tokens;
  }

  // Handles the character at `at`, and returns where to go on.
  function special(state, at) {
    const { text, tokens } = state;
    switch (text[at]) {
      case "\\":
        if (/[!-/:-@[-`{-~]/.test(text[at + 1] || "")) { tokens.push({ text: text[at + 1] }); return at + 2; }
        break;
      case "\n": tokens.push({ lineEnd: true }); return at + 1;
      case "`": return codeSpan(state, at);
      case "*": case "_": case "~": return delimiterRun(state, at);
      case "!":
        if (text[at + 1] === "[") return openBracket(state, at, 2);
        break;
      case "[": return openBracket(state, at, 1);
      case "]": return closeBracket(state, at);
      case "<": case "h": case "H": {
        const end = bareLink(state, at);
        if (end) return end;
        break;
      }
    }
    tokens.push({ text: text[at] });
    return at + 1;
  }

  function codeSpan(state, at) {
    const { text } = state;
    let width = 1;
    while (text[at + width] === "`") width++;
    const from = at + width;
    if (!state.noCode.has(width)) {
      for (let end = text.indexOf("`", from); end >= 0;) {
        let run = 1;
        while (text[end + run] === "`") run++;
        if (run === width) {
          let code = text.slice(from, end).replace(/\n/g, " ");
          if (/^ .*[^ ].* $/.test(code)) code = code.slice(1, -1);
          state.tokens.push({ code });
          return end + run;
        }
        end = text.indexOf("`", end + run);
      }
      state.noCode.add(width);  // no second search for what is not there
    }
    state.tokens.push({ text: text.slice(at, from) });
    return from;
  }

  function delimiterRun(state, at) {
    const { text } = state;
    const mark = text[at];
    let end = at + 1;
    while (text[end] === mark) end++;
    const before = at ? text[at - 1] : " ";
    const after = end < text.length ? text[end] : " ";
    const left = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
    const right = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
    const inWord = mark === "_";
    state.tokens.push({
      mark, count: end - at, both: left && right,
      opens: left && (!inWord || !right || PUNCTUATION.test(before)),
      closes: right && (!inWord || !left || PUNCTUATION.test(after)),
    });
    return end;
  }

  function openBracket(state, at, width) {
    state.brackets.push(state.tokens.length);
    state.tokens.push({ text: state.text.slice(at, at + width), image: width === 2 });
    return at + width;
  }

  // "](target)" makes a link of all tokens since the bracket.
  function closeBracket(state, at) {
    const { text, tokens, brackets } = state;
    const open = brackets.pop();
    const match = open === undefined ? null : targetAt(text, at + 1);
    const url = match && safeUrl(match.target);
    if (!url) {
      tokens.push({ text: "]" });
      return at + 1;
    }
    const [bracket, ...children] = tokens.splice(open);
    matchDelimiters(children, 0);
    tokens.push({ link: url, children, image: bracket.image });
    brackets.length = 0;  // no link inside a link
    return match.end;
  }

  // "(target)" or "(<target> "title")" at `at`: {target, end}.
  function targetAt(text, at) {
    const target = String.raw`<([^<>\n]{0,2000})>|((?:[^\s()<>]|\([^\s()<>]{0,500}\)){1,2000})`;
    const title = String.raw`(?:\s+(?:"[^"\n]{0,500}"|'[^'\n]{0,500}'))?`;
    const pattern = new RegExp(String.raw`\(\s*(?:${target})${title}\s*\)`, "y");
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    return match && { target: match[1] ?? match[2], end: pattern.lastIndex };
  }

  function bareLink(state, at) {
    const { text } = state;
    const angle = text[at] === "<";
    if (!angle && at && /[\p{L}\p{N}]/u.test(text[at - 1])) return 0;
    const pattern = angle ? /<(https?:\/\/[^\s<>]{1,2000})>/iy : /https?:\/\/[^\s<>"'`|\\^{}]{1,2000}/iy;
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (!match) return 0;
    let shown = angle ? match[1] : match[0];
    if (!angle) {
      shown = shown.replace(/[?!.,:;*_~]+$/, "");
      // A ")" at the end belongs to the sentence unless it was opened within.
      let extra = count(shown, ")") - count(shown, "(");
      for (; extra > 0 && shown.endsWith(")"); extra--) shown = shown.slice(0, -1);
      shown = shown.replace(/[?!.,:;*_~\]]+$/, "");
    }
    const url = safeUrl(shown);
    if (!url) return 0;
    state.tokens.push({ link: url, children: [{ text: shown }] });
    return angle ? at + match[0].length : at + shown.length;
  }

  const count = (text, character) => text.split(character).length - 1;

  // The address, if it is an absolute one of the web; else null.
  function safeUrl(target) {
    if (!/^https?:\/\//i.test(target)) return null;
    try {
      const url = new URL(target);
      return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
    } catch {
      return null;
    }
  }

  // Pairs runs of *, _ and ~~ (CommonMark, "process emphasis"): a pair becomes {wrap, children}.
  function matchDelimiters(tokens, from) {
    const openers = [];
    const out = tokens.splice(from);
    const done = [];
    for (const token of out) {
      if (token.mark && token.closes) closeRun(done, openers, token);
      if (token.mark && token.count > 0 && token.opens) {
        openers.push(done.length);
        done.push(token);
        if (openers.length > OPENERS_MAX) openers.shift();
      } else if (token.mark) {
        if (token.count > 0) done.push({ text: token.mark.repeat(token.count) });
      } else {
        done.push(token);
      }
    }
    for (const token of done) {
      tokens.push(token.mark ? { text: token.mark.repeat(token.count) } : token);
    }
  }

  function closeRun(done, openers, closer) {
    while (closer.count > 0) {
      let at = openers.length - 1;
      while (at >= 0 && !fits(done[openers[at]], closer)) at--;
      if (at < 0) return;
      const opener = done[openers[at]];
      const width = closer.mark === "~" ? 2 : Math.min(2, opener.count, closer.count);
      const children = done.splice(openers[at] + 1).map((token) =>
        token.mark ? { text: token.mark.repeat(token.count) } : token);
      openers.length = at + 1;
      opener.count -= width;
      closer.count -= width;
      if (opener.count === 0) { done.pop(); openers.pop(); }
      const tag = closer.mark === "~" ? "del" : width === 2 ? "strong" : "em";
      done.push({ wrap: tag, children });
    }
  }

  function fits(opener, closer) {
    if (opener.mark !== closer.mark) return false;
    if (closer.mark === "~") return opener.count >= 2 && closer.count >= 2;
    if ((opener.both || closer.both) && (opener.count + closer.count) % 3 === 0 &&
        (opener.count % 3 || closer.count % 3)) return false;
    return true;
  }

  // --- Elements ----------------------------------------------------------------------------------

  // Neighbouring texts become one node: there may be very many.
  function appendInline(parent, tokens) {
    let text = "";
    const flush = () => {
      if (text) parent.append(text);
      text = "";
    };
    for (const token of tokens) {
      if (token.text !== undefined) {
        text += token.text;
        continue;
      }
      flush();
      if (token.lineEnd) parent.append(document.createElement("br"));
      else if (token.code !== undefined) parent.append(el("code", null, token.code));
      else if (token.wrap) parent.append(appendInline(el(token.wrap), token.children));
      else if (token.link) parent.append(linkElement(token));
    }
    flush();
    return parent;
  }

  // No words of the page go out with a click: no referrer, no opener.
  function linkElement({ link, children, image }) {
    const node = el("a", { href: link, target: "_blank", rel: "noopener noreferrer nofollow", title: link });
    if (image) node.append("picture: ");
    return appendInline(node, children.length ? children : [{ text: link }]);
  }

  const BUILDERS = {
    // The page's own headings end at 2.
    heading: (block) => appendInline(el("h" + Math.min(block.level + 2, 6)), inline(block.text)),
    paragraph: (block) => appendInline(el("p"), inline(block.text)),
    rule: () => el("hr"),
    quote: (block) => el("blockquote", null, block.blocks.map(element)),
    code: codeElement,
    table: tableElement,
    list: (block) => el(block.ordered ? "ol" : "ul",
                        { start: block.ordered && block.start !== 1 ? block.start : null },
                        block.items.map(itemElement)),
  };

  const element = (block) => BUILDERS[block.kind](block);

  function itemElement(item) {
    const node = el("li");
    if (item.box !== null) {
      node.className = "task";
      node.append(el("input", { type: "checkbox", disabled: true, checked: item.box,
                                "aria-label": item.box ? "done" : "open" }));
    }
    for (const [index, block] of item.blocks.entries()) {
      // The first line stands beside its mark, without a paragraph's distance.
      if (index === 0 && block.kind === "paragraph") appendInline(node, inline(block.text));
      else node.append(element(block));
    }
    return node;
  }

  function tableElement(block) {
    const cell = (tag, text, column) =>
      appendInline(el(tag, { class: "align-" + (block.align[column] || "left") }), inline(text));
    const head = el("tr", null, block.head.map((text, column) => cell("th", text, column)));
    const rows = block.rows.map((row) =>
      el("tr", null, block.head.map((_, column) => cell("td", row[column] || "", column))));
    return el("div.table", { tabindex: 0, role: "region", "aria-label": "Table" },
              el("table", null, el("thead", null, head), el("tbody", null, rows)));
  }

  function codeElement(block) {
    const code = el("code");
    const node = el("div.code-block", null,
      el("div.code-head", null, el("span", null, block.language || "code"),
         copyButton("Copy the code", () => code.textContent)),
      el("pre", { tabindex: 0, role: "region", "aria-label": "Code" }, code));
    fillCode(code, block);
    return node;
  }

  // Parts that are there already stay, with the selection in them.
  function fillCode(code, block) {
    const before = code.codeParts || [];
    const parts = highlight(block.text, block.language);
    let same = 0;
    while (same < parts.length && same < before.length && parts[same].text === before[same].text &&
           parts[same].kind === before[same].kind) same++;
    while (code.childNodes.length > same) code.lastChild.remove();
    code.append(...parts.slice(same).map(({ text, kind }) => (kind ? el("span.code-" + kind, null, text) : text)));
    code.codeParts = parts;
  }

  // Shows `text` in `parent`. What has not changed since the last call stays as it is, so that a
  // stream costs no more than its last block, and a selection above it lives.
  function render(parent, text) {
    const before = parent.markdownBlocks || [];
    const blocks = blocksOf(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), 0);
    let same = 0;
    while (same < blocks.length && same < before.length && blocks[same].source === before[same].source &&
           blocks[same].kind === before[same].kind) same++;
    for (let at = same; at < Math.max(blocks.length, before.length); at++) {
      const node = parent.children[at];
      if (at >= blocks.length) { parent.children[blocks.length].remove(); continue; }
      const block = blocks[at];
      if (node && block.kind === "code" && before[at].kind === "code" && block.language === before[at].language) {
        fillCode(node.querySelector("code"), block);  // its place in a long line and its button stay
      } else if (node) {
        node.replaceWith(element(block));
      } else {
        parent.append(element(block));
      }
    }
    parent.markdownBlocks = blocks.map(({ kind, source, language }) => ({ kind, source, language }));
  }

  return { render };
})();
