// What stays in the browser: conversations, settings, theme, and the API key where a person wants that.
//
// A conversation is a tree: {id, title, named, changed, settings, messages: {id: message}, roots: [id], leaf}.
// A message is {id, parent, role, content, children: [id], ...}; editing a question or answering again makes
// a sibling, and `leaf` says which branch is shown. Each conversation has a key of its own in localStorage, so
// that two tabs disturb each other only where both write to the same one; then the later write counts.

const store = (() => {
  const PREFIX = "strata.conversation.";
  const memory = new Map();  // where the browser keeps nothing (a private window)
  let refused = false;

  function read(key, storage = "localStorage") {
    try {
      return window[storage].getItem(key) ?? memory.get(key) ?? null;
    } catch {
      return memory.get(key) ?? null;
    }
  }

  function write(key, text, storage = "localStorage") {
    try {
      window[storage].setItem(key, text);
      memory.delete(key);
      return true;
    } catch {
      memory.set(key, text);
      if (!refused) {
        notify("The browser keeps no more: this conversation is gone when the tab closes. " +
               "Export what matters, and delete what does not.", null, 20);
      }
      refused = true;
      return false;
    }
  }

  function drop(key, storage = "localStorage") {
    memory.delete(key);
    try { window[storage].removeItem(key); } catch { /* nothing was kept */ }
  }

  function parse(text) {
    try { return JSON.parse(text); } catch { return null; }
  }

  // --- Conversations -----------------------------------------------------------------------------

  const isObject = (thing) => typeof thing === "object" && thing !== null && !Array.isArray(thing);

  // What is not as the page writes it is left out: files come from anywhere.
  function checkedMessage(id, value) {
    const { parent, role, created, usage, timings, seen, calls, error } = value;
    const message = { id, parent, role, created, content: String(value.content ?? ""), children: [] };
    for (const name of ["reasoning", "finish", "callId", "name"]) {
      if (typeof value[name] === "string") message[name] = value[name];
    }
    if (value.reasoningMs > 0) message.reasoningMs = Number(value.reasoningMs);
    if (value.stopped === true) message.stopped = true;
    Object.entries({ usage, timings, seen, error }).forEach(([name, part]) => {
      if (isObject(part)) message[name] = part;
    });
    if (Array.isArray(calls) && calls.length) {
      message.calls = calls.filter(isObject).map((call) => (
        { id: String(call.id), name: String(call.name), arguments: String(call.arguments) }));
    }
    return message;
  }

  function checkedSettings(value) {
    const settings = {};
    if (!isObject(value)) return settings;
    for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
      if (typeof value[name] === "number") settings[name] = value[name];
    }
    for (const name of ["system", "model"]) if (typeof value[name] === "string") settings[name] = value[name];
    if (typeof value.tools === "string" && Array.isArray(parse(value.tools))) settings.tools = value.tools;
    return settings;
  }

  // The conversation in `value`, with everything that the page relies on; null if it is none.
  function checked(value) {
    if (!isObject(value) || !isObject(value.messages)) return null;
    if (typeof value.id !== "string" || !/^\w{1,64}$/.test(value.id)) return null;
    const messages = Object.create(null);
    for (const [id, message] of Object.entries(value.messages)) {
      if (!isObject(message) || !["user", "assistant", "tool"].includes(message.role)) return null;
      messages[id] = checkedMessage(id, message);
    }
    const roots = [];
    for (const message of Object.values(messages)) {
      if (message.parent && !messages[message.parent]) return null;
      (message.parent ? messages[message.parent].children : roots).push(message.id);
    }
    // In the order in which they were written.
    const order = (a, b) => (messages[a].created || 0) - (messages[b].created || 0);
    roots.sort(order);
    for (const message of Object.values(messages)) message.children.sort(order);
    const leaf = messages[value.leaf] ? value.leaf : null;
    const conversation = {
      id: value.id, title: String(value.title || "").slice(0, 200), named: value.named === true,
      changed: Number(value.changed) || Date.now(), settings: checkedSettings(value.settings),
      messages, roots, leaf,
    };
    return pathOf(conversation) === null ? null : conversation;
  }

  // The messages that are shown, first to last; null if parents go round in a circle.
  function pathOf(conversation) {
    const path = [];
    const seen = new Set();
    for (let id = conversation.leaf; id; id = conversation.messages[id].parent) {
      if (seen.has(id)) return null;
      seen.add(id);
      path.push(conversation.messages[id]);
    }
    return path.reverse();
  }

  // All conversations, the latest first.
  function all() {
    const keys = new Set(memory.keys());
    try {
      for (let at = 0; at < localStorage.length; at++) keys.add(localStorage.key(at));
    } catch { /* nothing was kept */ }
    return [...keys].filter((key) => key.startsWith(PREFIX)).map((key) => checked(parse(read(key))))
      .filter(Boolean).sort((a, b) => b.changed - a.changed);
  }

  const load = (id) => checked(parse(read(PREFIX + id)));

  function save(conversation) {
    write(PREFIX + conversation.id, JSON.stringify(conversation));
  }

  const remove = (id) => drop(PREFIX + id);

  function exported(conversations) {
    return JSON.stringify({ format: "strata-conversations", version: 1, conversations }, null, 2);
  }

  // Adds those in an exported file, under new ids where one is there already. Returns them, or null
  // for another file.
  function imported(text) {
    const file = parse(text);
    if (!file || file.format !== "strata-conversations" || !Array.isArray(file.conversations)) return null;
    const added = file.conversations.map(checked);
    if (added.includes(null)) return null;
    for (const conversation of added) {
      if (load(conversation.id)) conversation.id = newId();
      save(conversation);
    }
    return added;
  }

  // `changed()` is called when another tab has written.
  function onChange(changed) {
    window.addEventListener("storage", (event) => {
      if (event.key === null || event.key.startsWith(PREFIX)) changed(event.key && event.key.slice(PREFIX.length));
    });
  }

  // --- Settings and the key ----------------------------------------------------------------------

  const settings = {
    read: () => checkedSettings(parse(read("strata.settings"))),
    write: (value) => write("strata.settings", JSON.stringify(value)),
  };

  const theme = {
    read: () => read("strata.theme"),
    write: (value) => (value ? write("strata.theme", value) : drop("strata.theme")),
  };

  const KEY = "strata.api-key";
  const apiKey = {
    read: () => read(KEY, "sessionStorage") || read(KEY) || "",
    isKept: () => Boolean(read(KEY)) && !read(KEY, "sessionStorage"),
    write(value, keep) {
      drop(KEY);
      drop(KEY, "sessionStorage");
      if (value) write(KEY, value, keep ? "localStorage" : "sessionStorage");
    },
  };

  return { all, load, save, remove, pathOf, exported, imported, onChange, settings, theme, apiKey };
})();
