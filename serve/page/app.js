// The frame: views, theme, keyboard, and the start of everything.

const app = (() => {
  const THEMES = [["", "Colours: as the system"], ["light", "Colours: light"], ["dark", "Colours: dark"]];

  function showView(name) {
    document.body.dataset.view = name;
    for (const view of ["chat", "cluster"]) $("view-" + view).setAttribute("aria-pressed", String(view === name));
    history.replaceState(null, "", name === "cluster" ? "#cluster" : "#");
    cluster.setShown(name === "cluster");
    if (name === "cluster") $("cluster").focus({ preventScroll: true });
  }

  function showTheme() {
    const theme = store.theme.read() || "";
    document.documentElement.dataset.theme = theme;
    const label = (THEMES.find(([name]) => name === theme) || THEMES[0])[1];
    $("theme").setAttribute("aria-label", label);
    $("theme").title = label;
  }

  function nextTheme() {
    const at = THEMES.findIndex(([name]) => name === (store.theme.read() || ""));
    const [name, label] = THEMES[(at + 1) % THEMES.length];
    store.theme.write(name);
    showTheme();
    announce(label);
  }

  function escape() {
    if (sidebar.isOpen()) sidebar.setOpen(false);
    else if (!chat.stop()) $("question").blur();
  }

  const ALT_KEYS = {
    KeyN() { showView("chat"); chat.begin(); },
    KeyR: () => chat.againLast(),
    Digit1: () => showView("chat"),
    Digit2: () => showView("cluster"),
    Comma: () => settingsDialog.open(),
  };

  function onKey(event) {
    if (event.isComposing || document.querySelector("dialog[open]")) return;
    if (event.altKey && !event.ctrlKey && !event.metaKey && ALT_KEYS[event.code]) {
      event.preventDefault();
      ALT_KEYS[event.code]();
      return;
    }
    if (event.key === "Escape") { escape(); return; }
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select")) return;
    if (event.key === "/") { event.preventDefault(); showView("chat"); $("question").focus(); }
    if (event.key === "?") { event.preventDefault(); $("keys").showModal(); }
  }

  // A click beside a dialog closes it.
  function closeBeside(dialog) {
    dialog.addEventListener("click", (event) => {
      if (event.target !== dialog) return;
      const box = dialog.getBoundingClientRect();
      const inside = event.clientX >= box.left && event.clientX <= box.right &&
        event.clientY >= box.top && event.clientY <= box.bottom;
      if (!inside) dialog.close();
    });
  }

  function start() {
    for (const node of document.querySelectorAll("[data-icon]")) node.append(icon(node.dataset.icon));
    $("theme").append(icon("half"));
    $("theme").addEventListener("click", nextTheme);
    $("open-keys").append(icon("keys"));
    $("open-keys").addEventListener("click", () => $("keys").showModal());
    $("view-chat").addEventListener("click", () => showView("chat"));
    $("view-cluster").addEventListener("click", () => showView("cluster"));
    document.querySelectorAll("dialog").forEach(closeBeside);
    document.addEventListener("keydown", onKey);
    showTheme();
    sidebar.start();
    settingsDialog.start();
    chat.start();
    cluster.start();
    showView(location.hash === "#cluster" ? "cluster" : "chat");
    if (matchMedia("(pointer: fine)").matches && document.body.dataset.view === "chat") $("question").focus();
  }

  return { start, showView };
})();

app.start();
