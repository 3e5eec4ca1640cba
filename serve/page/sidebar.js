// The list of conversations: open, rename, delete (with a way back), export, import.

const sidebar = (() => {
  let renaming = null;

  const isDrawer = () => matchMedia("(max-width: 899px)").matches;

  function setOpen(open) {
    document.body.classList.toggle("side-open", open);
    $("side-open").setAttribute("aria-expanded", String(open));
    $("page").inert = open && isDrawer();
    if (open) (document.querySelector("#conversations [aria-current]") || $("new-chat")).focus();
    else if ($("sidebar").contains(document.activeElement)) $("side-open").focus();
  }

  function update() {
    if (renaming) return;
    const current = chat.current()?.id;
    const focused = document.activeElement?.dataset?.focus;
    const all = store.all();
    const list = $("conversations");
    list.replaceChildren(...all.map((conversation) => item(conversation, conversation.id === current)));
    if (focused) list.querySelector(`[data-focus="${focused}"]`)?.focus();
    setHidden($("no-conversations"), all.length > 0);
    $("export-all").disabled = all.length === 0;
  }

  function item(conversation, isCurrent) {
    const { id, title } = conversation;
    const button = el("button.open", {
      type: "button", "aria-current": isCurrent ? "true" : null, "data-focus": id, title,
      onclick() { chat.open(id); app.showView("chat"); if (isDrawer()) setOpen(false); $("question").focus(); },
      ondblclick: () => rename(id, node),
      onkeydown(event) {
        if (event.key === "F2") rename(id, node);
        if (event.key === "Delete") remove(id);
      },
    }, chat.isRunning(id) ? el("span.pulse", { role: "img", "aria-label": "answering" }) : null,
       el("span", { dir: "auto" }, title));
    const node = el("li", null, button, el("span.more", null,
      iconButton("edit", `Rename “${title}”`, () => rename(id, node)),
      iconButton("save", `Export “${title}”`, () => exportOne(id)),
      iconButton("bin", `Delete “${title}”`, () => remove(id))));
    return node;
  }

  function rename(id, node) {
    const conversation = chat.live(id) || store.load(id);
    if (!conversation) return;
    const field = el("input", { type: "text", value: conversation.title, maxlength: 200,
                                "aria-label": "Name of the conversation" });
    let ended = false;
    const end = (keep) => {
      if (ended) return;
      ended = true;
      renaming = null;
      const name = field.value.trim();
      if (keep && name) {
        conversation.title = name;
        conversation.named = true;
        store.save(conversation);
      }
      update();
      chat.show();
      $("conversations").querySelector(`[data-focus="${id}"]`)?.focus();
    };
    renaming = id;
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") end(true);
      if (event.key === "Escape") { event.stopPropagation(); end(false); }
    });
    field.addEventListener("blur", () => end(true));
    node.replaceChildren(field);
    field.focus();
    field.select();
  }

  function remove(id) {
    const conversation = chat.live(id) || store.load(id);
    if (!conversation) return;
    chat.abandon(id);
    store.remove(id);
    update();
    const undo = () => {
      store.save(conversation);
      update();
    };
    notify(`Deleted “${words.short(conversation.title, 40)}”`, { label: "Undo", run: undo }, 10);
  }

  function exportOne(id) {
    const conversation = chat.live(id) || store.load(id);
    const name = conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40).replace(/^-|-$/g, "");
    saveFile(`strata-${name || "conversation"}.json`, store.exported([conversation]));
  }

  async function importFrom(file) {
    const added = store.imported(await file.text());
    update();
    notify(added ? `Added ${words.plural(added.length, "conversation")}`
                 : `“${words.short(file.name, 40)}” holds no conversations that Strata has exported`);
  }

  function start() {
    $("side-open").append(icon("menu"));
    $("side-close").append(icon("close"));
    $("new-chat").append(icon("plus"), "New conversation");
    $("export-all").append(icon("save"), "Export all");
    $("import").append(icon("open"), "Import");
    $("side-open").addEventListener("click", () => setOpen(!document.body.classList.contains("side-open")));
    $("side-close").addEventListener("click", () => setOpen(false));
    $("shade").addEventListener("click", () => setOpen(false));
    $("new-chat").addEventListener("click", () => { setOpen(false); app.showView("chat"); chat.begin(); });
    $("export-all").addEventListener("click", () =>
      saveFile("strata-conversations.json", store.exported(store.all())));
    $("import").addEventListener("click", () => $("import-file").click());
    $("import-file").addEventListener("change", (event) => {
      if (event.target.files[0]) importFrom(event.target.files[0]);
      event.target.value = "";
    });
    matchMedia("(max-width: 899px)").addEventListener("change", () => setOpen(false));
    store.onChange((id) => { update(); chat.reload(id); });
    update();
  }

  return { start, update, setOpen, isOpen: () => document.body.classList.contains("side-open") && isDrawer() };
})();
