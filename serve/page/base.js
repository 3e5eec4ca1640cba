// Building blocks of the page: elements, icons, announcements, notices, numbers in words.
//
// Text becomes a text node and nothing else: no function here or elsewhere takes HTML. The page's
// Content-Security-Policy forbids it too (require-trusted-types-for 'script').

const $ = (id) => document.getElementById(id);

// el("button.quiet.square", {title: "Copy", onclick: f}, icon("copy"), "Copy")
// Attributes whose value is null, undefined or false are left out; on... are listeners.
function el(spec, attributes, ...children) {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function icon(name) {
  const node = $("icon").content.firstElementChild.cloneNode(true);
  node.firstElementChild.setAttribute("href", "#i-" + name);
  return node;
}

function iconButton(name, label, onclick, spec = "button.quiet.square") {
  return el(spec, { type: "button", "aria-label": label, title: label, onclick }, icon(name));
}

// Writes only what has changed, so that neither selections nor screen readers are disturbed.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

// Said once by screen readers, after what they are saying now.
function announce(text) {
  const region = $("announce");
  region.textContent = "";
  setTimeout(() => (region.textContent = text), 50);
}

// A notice at the bottom for `seconds`, with something to do about it if there is an action.
function notify(text, action = null, seconds = 6) {
  const notice = el("div.toast", { role: "status" }, el("span", null, text));
  const close = () => notice.remove();
  let timer = setTimeout(close, seconds * 1000);
  if (action) {
    notice.append(el("button.quiet", { type: "button", onclick: () => { close(); action.run(); } },
                     action.label));
  }
  notice.append(iconButton("close", "Close", close));
  // It waits for those who read it, or are on their way to its button.
  const hold = () => clearTimeout(timer);
  const release = () => { hold(); timer = setTimeout(close, seconds * 1000); };
  notice.addEventListener("pointerenter", hold);
  notice.addEventListener("pointerleave", release);
  notice.addEventListener("focusin", hold);
  notice.addEventListener("focusout", release);
  $("toasts").append(notice);
}

// navigator.clipboard is there on https and localhost only.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = el("textarea.unseen", { value: text, readonly: true });
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

// A button that copies what `text()` gives, and says so for a moment.
function copyButton(label, text, spec = "button.quiet.square") {
  const button = iconButton("copy", label, async () => {
    const focused = document.activeElement;
    const done = await copyText(text());
    if (focused === button) button.focus();
    button.replaceChildren(icon(done ? "check" : "warn"));
    announce(done ? "Copied" : "The browser does not allow copying here");
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  }, spec);
  return button;
}

function saveFile(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// crypto.randomUUID is there on https and localhost only.
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const words = {
  count: (value) => Math.round(value).toLocaleString("en-US"),
  plural: (value, one, many = one + "s") => `${words.count(value)} ${value === 1 ? one : many}`,
  rate: (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1)),
  bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    while (value >= 1024 && unit + 1 < units.length) { value /= 1024; unit++; }
    return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
  },
  // "1.2 of 4.0 GiB"
  share(part, whole) {
    const [all, unit] = words.bytes(whole).split(" ");
    const [some, same] = words.bytes(part).split(" ");
    return same === unit ? `${some} of ${all} ${unit}` : `${some} ${same} of ${all} ${unit}`;
  },
  // Of a number of milliseconds.
  duration(ms) {
    if (ms < 1) return `${Math.round(ms * 1000)} µs`;
    if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
    if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
    const seconds = Math.round(ms / 1000);
    return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  },
  clock: (date) => date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  // At most `count` characters, cut between words where that is near.
  short(text, count) {
    const line = text.trim().replace(/\s+/g, " ");
    const characters = Array.from(line);
    if (characters.length <= count) return line;
    return characters.slice(0, count - 1).join("").replace(/\s+\S{0,12}$/, "") + "…";
  },
};
