// The conversation that is shown: asking, streaming, stopping, answering again, branching off.

const chat = (() => {
  const SAVE_EVERY_MS = 2000;
  const FRAME_MS_MAX = 250;

  let conversation = null;       // null until the first question
  let views = new Map();         // message id -> view, of the messages that are shown
  let following = true;          // the reader is at the end, and wants to stay there
  const runs = new Map();        // conversation id -> {message, controller}: answers on their way
  let models = [];

  // --- What is shown -----------------------------------------------------------------------------

  const area = $("scroll");

  function path() {
    return conversation ? store.pathOf(conversation) : [];
  }

  // `change()` may add to the end without moving what a reader elsewhere sees.
  function keepPlace(change) {
    change();
    if (following) area.scrollTop = area.scrollHeight;
    showToEnd();
  }

  function distanceToEnd() {
    return area.scrollHeight - area.clientHeight - area.scrollTop;
  }

  function showToEnd() {
    setHidden($("to-end"), following || distanceToEnd() < 120);
  }

  function goToEnd() {
    following = true;
    area.scrollTop = area.scrollHeight;
    showToEnd();
  }

  // Shows the path to the leaf; messages that were shown before keep their elements.
  function show() {
    const before = views;
    views = new Map();
    const parent = $("messages");
    const nodes = path().map((message) => {
      const old = before.get(message.id);
      const view = old && old.message === message ? old : { ...messageView.create(message, actions), message };
      views.set(message.id, view);
      view.update();
      return view.node;
    });
    nodes.forEach((node, at) => {
      if (parent.children[at] !== node) parent.insertBefore(node, parent.children[at] || null);
    });
    while (parent.children.length > nodes.length) parent.lastChild.remove();
    setHidden($("welcome"), nodes.length > 0);
    showTitle();
    showComposer();
    showToEnd();
  }

  function showTitle() {
    const title = conversation ? conversation.title : "New conversation";
    setText($("title"), title);
    document.title = conversation ? `${title} · Strata` : "Strata";
  }

  function showComposer() {
    const busy = Boolean(conversation && runs.has(conversation.id));
    const button = $("send");
    const name = busy ? "stop" : "send";
    if (button.dataset.does !== name) {
      button.dataset.does = name;
      button.replaceChildren(icon(name));
      button.setAttribute("aria-label", busy ? "Stop the answer" : "Send");
      button.title = busy ? "Stop (Esc)" : "Send (Enter)";
    }
    button.disabled = !busy && !$("question").value.trim();
  }

  // --- Conversations -----------------------------------------------------------------------------

  function open(id) {
    conversation = runs.get(id)?.conversation || store.load(id);
    views = new Map();
    $("messages").replaceChildren();
    show();
    goToEnd();
    sidebar.update();
  }

  function begin() {
    conversation = null;
    views = new Map();
    show();
    sidebar.update();
    $("question").focus();
  }

  function save(changed) {
    changed.changed = Date.now();
    store.save(changed);
  }

  function addMessage(fields, parent) {
    const message = { id: newId(), parent, children: [], created: nextTime(), content: "", ...fields };
    conversation.messages[message.id] = message;
    (parent ? conversation.messages[parent].children : conversation.roots).push(message.id);
    conversation.leaf = message.id;
    return message;
  }

  // Another tab has written to the conversation; what is on its way here counts more.
  function reload(id) {
    if (conversation?.id !== id || runs.has(id) || $("messages").querySelector(".editing")) return;
    const written = store.load(id);
    if (!written) return;
    conversation = written;
    keepPlace(show);
  }

  // Times order siblings, so no two are equal.
  let lastTime = 0;
  function nextTime() {
    lastTime = Math.max(Date.now(), lastTime + 1);
    return lastTime;
  }

  function siblings(message) {
    return message.parent ? conversation.messages[message.parent].children : conversation.roots;
  }

  // --- Asking ------------------------------------------------------------------------------------

  function ask(text, parent = conversation ? conversation.leaf : null) {
    if (!conversation) {
      conversation = { id: newId(), title: words.short(text, 60), named: false, changed: Date.now(),
                       settings: store.settings.read(), messages: Object.create(null), roots: [], leaf: null };
    }
    stop();
    addMessage({ role: "user", content: text }, parent);
    run();
  }

  // Answers the message at the leaf.
  function run() {
    const mine = conversation;
    const message = addMessage({ role: "assistant" }, mine.leaf);
    const controller = new AbortController();
    const entry = { message, controller, conversation: mine };
    runs.set(mine.id, entry);
    const body = requestBody(mine, message);
    save(mine);
    show();
    goToEnd();
    sidebar.update();
    announce("Asked. The answer is on its way.");
    stream(entry, body).finally(() => {
      if (entry.abandoned) return;  // its conversation is gone
      if (runs.get(mine.id) === entry) runs.delete(mine.id);
      save(mine);
      if (conversation === mine) {
        keepPlace(() => { views.get(message.id)?.update(); showComposer(); });
        const how = message.stopped ? "Answer, stopped" : "Answer";
        announce(message.error ? `${message.error.title}. ${message.error.advice}`
                               : `${how}: ${words.short(message.content, 1000)}`);
      }
      sidebar.update();
    });
  }

  function requestBody(mine, message) {
    const settings = mine.settings;
    const messages = settings.system ? [{ role: "system", content: settings.system }] : [];
    for (const earlier of store.pathOf(mine)) {
      if (earlier === message) break;
      const sent = sentMessage(earlier);
      if (sent) messages.push(sent);
    }
    const body = { model: settings.model || models[0]?.id || "strata", messages, stream: true,
                   stream_options: { include_usage: true } };
    for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
      if (typeof settings[name] === "number") body[name] = settings[name];
    }
    if (settings.tools) body.tools = JSON.parse(settings.tools);
    return body;
  }

  function sentMessage(message) {
    if (message.role === "tool") return { role: "tool", tool_call_id: message.callId, content: message.content };
    if (message.role === "user") return { role: "user", content: message.content };
    if (!message.content && !message.calls) return null;  // failed before its first word
    const sent = { role: "assistant", content: message.content };
    if (message.calls) {
      sent.tool_calls = message.calls.map(({ id, name, arguments: text }) =>
        ({ id, type: "function", function: { name, arguments: text } }));
    }
    return sent;
  }

  async function stream({ message, controller, conversation: mine }, body) {
    const from = performance.now();
    message.seen = { firstMs: 0, lastMs: 0 };
    const paint = painter(mine, message);
    let saved = from;
    try {
      await api.answer(body, controller.signal, (chunk) => {
        take(message, chunk, performance.now() - from);
        paint();
        if (performance.now() - saved > SAVE_EVERY_MS) { saved = performance.now(); store.save(mine); }
      });
      message.finish = message.finish || "stop";
    } catch (error) {
      if (error.name === "AbortError") message.stopped = true;
      else message.error = shownError(error);
    }
  }

  function shownError(error) {
    if (!(error instanceof api.ServerError)) {
      return { title: "The page cannot read the server's answer",
               advice: "Page and server may be of different versions: reload the page.",
               detail: String(error.message || error) };
    }
    const { message: title, advice, detail, kind, retryAfter } = error;
    return { title, advice, detail, kind, retryAt: retryAfter ? Date.now() + retryAfter * 1000 : 0 };
  }

  // Adds one chunk of the stream to the message.
  function take(message, chunk, nowMs) {
    if (chunk.usage) message.usage = chunk.usage;
    if (chunk.timings) message.timings = chunk.timings;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    const delta = choice.delta || {};
    const reasoning = delta.reasoning_content || delta.reasoning || "";
    if (reasoning || delta.content || delta.tool_calls) {
      message.seen.firstMs = message.seen.firstMs || nowMs;
      message.seen.lastMs = nowMs;
    }
    if (reasoning) message.reasoning = (message.reasoning || "") + reasoning;
    if ((delta.content || delta.tool_calls) && message.reasoning && !message.reasoningMs) {
      message.reasoningMs = nowMs - message.seen.firstMs;
    }
    if (delta.content) message.content += delta.content;
    for (const part of delta.tool_calls || []) takeCall(message, part);
    if (choice.finish_reason) message.finish = choice.finish_reason;
  }

  function takeCall(message, part) {
    message.calls = message.calls || [];
    const index = part.index ?? 0;
    if (!(index >= 0 && index <= message.calls.length)) return;  // they come in order
    const call = (message.calls[index] = message.calls[index] || { id: "", name: "", arguments: "" });
    if (part.id) call.id = part.id;
    call.name += part.function?.name || "";
    call.arguments += part.function?.arguments || "";
  }

  // Paints once for many chunks: with each frame, and less often the longer painting takes.
  function painter(mine, message) {
    let waiting = false;
    let pauseMs = 0;
    const paint = () => {
      waiting = false;
      if (conversation !== mine) return;
      const from = performance.now();
      keepPlace(() => views.get(message.id)?.update());
      pauseMs = Math.min(FRAME_MS_MAX, 4 * (performance.now() - from));
    };
    return () => {
      if (waiting) return;
      waiting = true;
      setTimeout(() => requestAnimationFrame(paint), pauseMs);
    };
  }

  function stop() {
    const entry = conversation && runs.get(conversation.id);
    if (entry) entry.controller.abort();
    return Boolean(entry);
  }

  // --- What a message's buttons do ---------------------------------------------------------------

  const actions = {
    siblings,
    isRunning: (message) => [...runs.values()].some((entry) => entry.message === message),
    isLast: (message) => conversation !== null && conversation.leaf === message.id,
    goToSibling(message, by) {
      const ids = siblings(message);
      let id = ids[ids.indexOf(message.id) + by];
      // On the way down the latest of each.
      while (conversation.messages[id].children.length) id = conversation.messages[id].children.at(-1);
      conversation.leaf = id;
      store.save(conversation);
      show();
    },
    askInstead: (message, text) => ask(text, message.parent),
    again(message) {
      stop();
      conversation.leaf = message.parent;
      // A failed try that said nothing leaves no version behind.
      if (message.error && !message.content && !message.calls && !message.children.length) {
        siblings(message).splice(siblings(message).indexOf(message.id), 1);
        delete conversation.messages[message.id];
      }
      run();
    },
    sendResults(message, results) {
      results.forEach((content, at) => {
        const call = message.calls[at];
        addMessage({ role: "tool", content, callId: call.id, name: call.name }, conversation.leaf);
      });
      run();
    },
    openSettings: (atKey) => settingsDialog.open(atKey),
    showCluster: () => app.showView("cluster"),
    newChat: begin,
  };

  function againLast() {
    const last = path().findLast((message) => message.role === "assistant");
    if (last && last.id === conversation.leaf) actions.again(last);
  }

  function editLast() {
    const last = path().findLast((message) => message.role === "user");
    const view = last && views.get(last.id);
    if (!view) return false;
    view.node.scrollIntoView({ block: "nearest" });
    view.edit();
    return true;
  }

  // --- The composer ------------------------------------------------------------------------------

  function submit() {
    const field = $("question");
    if (conversation && runs.has(conversation.id)) { stop(); return; }
    const text = field.value.trim();
    if (!text) return;
    field.value = "";
    fitHeight(field);
    ask(text);
    field.focus();
  }

  function start() {
    $("composer").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
    const field = $("question");
    field.addEventListener("input", () => { fitHeight(field); showComposer(); });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        if (!(conversation && runs.has(conversation.id))) submit();  // Enter never stops an answer
      } else if (event.key === "ArrowUp" && !field.value && editLast()) {
        event.preventDefault();
      }
    });
    area.addEventListener("scroll", () => { following = distanceToEnd() < 8; showToEnd(); }, { passive: true });
    new ResizeObserver(() => { if (following) area.scrollTop = area.scrollHeight; }).observe(area);
    $("to-end").append(icon("down"));
    $("to-end").setAttribute("aria-label", "To the end of the conversation");
    $("to-end").addEventListener("click", goToEnd);
    window.addEventListener("pagehide", () => runs.forEach((entry) => store.save(entry.conversation)));
    show();
    loadModels();
  }

  async function loadModels() {
    try {
      models = await api.models();
    } catch {
      models = [];  // asking will say what is wrong
    }
    const context = models[0]?.meta?.n_ctx;
    const limit = context ? `, up to ${words.count(context)} tokens` : "";
    setText($("welcome-model"),
            models.length ? `${models[0].id}${limit}. Conversations stay in this browser.` : "");
  }

  return {
    start, open, begin, stop, ask, againLast, show, loadModels, reload,
    current: () => conversation,
    models: () => models,
    isRunning: (id) => runs.has(id),
    // The conversation object that is in use, where there is one.
    live: (id) => (conversation?.id === id ? conversation : runs.get(id)?.conversation) || null,
    settings: () => (conversation ? conversation.settings : store.settings.read()),
    // Ends what is on its way for a conversation that goes.
    abandon(id) {
      const entry = runs.get(id);
      if (entry) {
        entry.abandoned = true;
        entry.message.stopped = true;
        entry.controller.abort();
        runs.delete(id);
      }
      if (conversation?.id === id) begin();
    },
  };
})();
