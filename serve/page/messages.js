// The elements of one message: question, answer with reasoning, calls, error and facts, tool's result.
//
// A view has `node` and `update()`, which shows what the message has become and leaves alone what has not
// changed. What a click does is the business of `actions` (chat.js).

const messageView = (() => {
  function create(message, actions) {
    if (message.role === "user") return question(message, actions);
    return message.role === "tool" ? toolResult(message) : answer(message, actions);
  }

  // "‹ 2/3 ›" where a message has siblings.
  function branches(message, actions) {
    const label = el("span.count");
    const step = (by) => () => actions.goToSibling(message, by);
    const back = iconButton("left", "Earlier version", step(-1));
    const on = iconButton("right", "Later version", step(1));
    const node = el("span.branches", { role: "group", "aria-label": "Versions" }, back, label, on);
    return {
      node,
      update() {
        const ids = actions.siblings(message);
        const at = ids.indexOf(message.id);
        setHidden(node, ids.length < 2);
        setText(label, `${at + 1}/${ids.length}`);
        back.disabled = at === 0;
        on.disabled = at === ids.length - 1;
      },
    };
  }

  // --- A question --------------------------------------------------------------------------------

  function question(message, actions) {
    const text = el("div.bubble", { dir: "auto" });
    const versions = branches(message, actions);
    const edit = iconButton("edit", "Edit this question", () => beginEdit(message, node, actions));
    const row = el("div.row", null, versions.node, copyButton("Copy the question", () => message.content), edit);
    const node = el("article.turn.user", { "aria-label": "Question" }, text, row);
    return {
      node,
      edit: () => beginEdit(message, node, actions),
      update() {
        setText(text, message.content);
        versions.update();
      },
    };
  }

  // The question becomes a field; what is asked then is a new branch beside it.
  function beginEdit(message, node, actions) {
    if (node.classList.contains("editing")) return;
    const field = el("textarea", { "aria-label": "Edit the question", rows: 1, dir: "auto",
                                   value: message.content });
    const end = () => { form.remove(); node.classList.remove("editing"); };
    const form = el("form.edit", {
      onsubmit(event) {
        event.preventDefault();
        if (!field.value.trim()) return;
        end();
        actions.askInstead(message, field.value.trim());
      },
      onkeydown(event) {
        if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
          event.preventDefault();
          form.requestSubmit();
        }
        if (event.key === "Escape") {
          event.stopPropagation();
          end();
          $("question").focus();
        }
      },
    }, field, el("div.row", null,
                 el("button.quiet", { type: "button", onclick: end }, "Cancel"),
                 el("button.main", { type: "submit" }, "Ask this instead")));
    node.classList.add("editing");
    node.prepend(form);
    fitHeight(field);
    field.addEventListener("input", () => fitHeight(field));
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }

  // --- An answer ---------------------------------------------------------------------------------

  function answer(message, actions) {
    const reasoning = reasoningPart(message);
    const content = el("div.markdown", { dir: "auto" });
    const calls = el("div.calls");
    const waiting = el("p.waiting", null, el("span.pulse", { "aria-hidden": "true" }),
                       el("span", null, "Reading the question"));
    const problem = el("div.problem", { role: "alert", hidden: true });
    const note = el("p.note", { hidden: true });
    const facts = el("span.facts");
    const versions = branches(message, actions);
    const buttons = el("span.buttons", null, versions.node,
      copyButton("Copy the answer", () => message.content),
      iconButton("again", "Answer again", () => actions.again(message)));
    const row = el("div.row", null, buttons, facts);
    const node = el("article.turn.assistant", { "aria-label": "Answer" },
                    reasoning.node, content, calls, waiting, note, problem, row);
    let shownError = null;
    return {
      node,
      update() {
        const busy = actions.isRunning(message);
        node.classList.toggle("busy", busy);
        node.setAttribute("aria-busy", String(busy));
        reasoning.update(busy);
        markdown.render(content, message.content);
        updateCalls(calls, message, actions, busy);
        setHidden(waiting, !busy || Boolean(message.content || message.reasoning || message.calls));
        const noteText = busy ? "" : noteOf(message);
        setText(note, noteText);
        setHidden(note, !noteText);
        if (message.error !== shownError) {
          shownError = message.error;
          problem.replaceChildren(...(message.error ? problemParts(message, actions) : []));
          setHidden(problem, !message.error);
        }
        // An answer that failed before its first word has its own button.
        const isEmpty = Boolean(message.error) && !message.content && !message.calls;
        setHidden(buttons, busy || (isEmpty && actions.siblings(message).length < 2));
        setText(facts, busy ? "" : factsOf(message));
        if (!busy) versions.update();
      },
    };
  }

  function reasoningPart(message) {
    const title = el("span");
    const body = el("div.markdown", { dir: "auto" });
    const node = el("details.reasoning", { hidden: true }, el("summary", null, title), body);
    const fill = () => { if (node.open) markdown.render(body, message.reasoning || ""); };
    node.addEventListener("toggle", fill);
    return {
      node,
      update(busy) {
        setHidden(node, !message.reasoning);
        if (!message.reasoning) return;
        const thinking = busy && !message.content && !message.calls;
        const time = message.reasoningMs ? ` for ${words.duration(message.reasoningMs)}` : "";
        setText(title, thinking ? "Thinking …" : `Thought${time}`);
        node.classList.toggle("thinking", thinking);
        fill();
      },
    };
  }

  function noteOf(message) {
    if (message.stopped) return "Stopped.";
    if (message.finish === "length") {
      return "Cut off: it came to the longest answer that the settings allow, or to the end of the context.";
    }
    if (message.finish === "content_filter") return "Ended by the server's filter.";
    if (!message.finish && !message.error) return "Interrupted: the page was left before the answer was complete.";
    return message.finish && !message.content && !message.calls && !message.error ? "The model said nothing." : "";
  }

  // What the server counted and measured; where it gives no rate, what was seen here.
  function factsOf(message) {
    const { usage = {}, timings = {}, seen = {} } = message;
    const parts = [];
    const tokens = usage.completion_tokens ?? timings.predicted_n;
    if (tokens > 0) parts.push(words.plural(tokens, "token"));
    const rate = timings.predicted_per_second ??
      (tokens > 1 && seen.lastMs > seen.firstMs ? (tokens - 1) * 1000 / (seen.lastMs - seen.firstMs) : 0);
    if (rate > 0) parts.push(`${words.rate(rate)} tokens/s`);
    if (tokens > 0 && seen.firstMs > 0) parts.push(`first after ${words.duration(seen.firstMs)}`);
    const read = usage.prompt_tokens ?? timings.prompt_n;
    const cached = usage.prompt_tokens_details?.cached_tokens ?? timings.cache_n ?? 0;
    const known = cached > 0 ? `, ${words.count(cached)} of them known` : "";
    if (read > 0) parts.push(`${words.count(read)} read${known}`);
    return parts.join(" · ");
  }

  function problemParts(message, actions) {
    const { title, advice, detail, kind, retryAt } = message.error;
    const button = (label, onclick, spec = "button.quiet") => el(spec, { type: "button", onclick }, label);
    const buttons = el("div.row", null, button("Try again", () => actions.again(message), "button"));
    if (kind === "key") buttons.append(button("Enter a key", () => actions.openSettings(true)));
    if (kind === "settings") buttons.append(button("Settings", () => actions.openSettings(false)));
    if (kind === "busy") buttons.append(button("See the cluster", actions.showCluster));
    if (kind === "context") buttons.append(button("New conversation", actions.newChat));
    if (retryAt > Date.now()) buttons.append(waitingTime(retryAt));
    const said = detail ? el("p.said", null, "The server said: ", el("q", null, detail)) : null;
    return [icon("warn"),
            el("div", null, el("strong", null, title), el("p", null, advice), said, buttons)];
  }

  // Counts down to when the server would like to be asked again.
  function waitingTime(retryAt) {
    const node = el("small", { "aria-live": "off" });
    const show = () => {
      const seconds = Math.ceil((retryAt - Date.now()) / 1000);
      setText(node, seconds > 0 ? `The server asks to wait ${seconds} s.` : "");
      if (seconds <= 0 || !node.isConnected) clearInterval(timer);
    };
    const timer = setInterval(show, 1000);
    setText(node, `The server asks to wait ${Math.ceil((retryAt - Date.now()) / 1000)} s.`);
    return node;
  }

  // --- Calls of tools ----------------------------------------------------------------------------

  function updateCalls(parent, message, actions, busy) {
    const calls = message.calls || [];
    calls.forEach((call, index) => {
      if (!parent.children[index]) {
        parent.append(el("details.call", { open: true },
                         el("summary", null, icon("tool"), el("code")), el("pre", { tabindex: 0 })));
      }
      const [summary, text] = parent.children[index].children;
      setText(summary.lastChild, call.name || "…");
      setText(text, busy ? call.arguments : indented(call.arguments));
    });
    const form = parent.querySelector("form");
    const wanted = !busy && calls.length > 0 && actions.isLast(message);
    if (form && !wanted) form.remove();
    if (!form && wanted) parent.append(resultsForm(message, actions));
  }

  function indented(text) {
    try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
  }

  // The page runs no tools: whoever sits before it does, or pretends to.
  function resultsForm(message, actions) {
    const fields = message.calls.map((call) =>
      el("textarea.code", { rows: 2, "aria-label": `Result of ${call.name}`,
                            placeholder: `What ${call.name} gives back` }));
    return el("form.results", {
      onsubmit(event) {
        event.preventDefault();
        actions.sendResults(message, fields.map((field) => field.value));
      },
    }, el("p.hint", null, "The model waits for what its tools give back."), fields,
       el("button", { type: "submit" }, "Send back"));
  }

  function toolResult(message) {
    const text = el("pre", { tabindex: 0 });
    const title = el("span", null, `Result of ${message.name || "a tool"}`);
    const node = el("article.turn.tool", { "aria-label": "Result of a tool" },
                    el("details.call", null, el("summary", null, icon("check"), title), text));
    return { node, update: () => setText(text, message.content) };
  }

  return { create };
})();

// Grows a field with its text where the style sheet's `field-sizing` is not known.
function fitHeight(field) {
  if (CSS.supports("field-sizing", "content")) return;
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}
