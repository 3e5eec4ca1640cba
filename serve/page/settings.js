// The settings dialog: how answers are made, the tools, the API key.

const settingsDialog = (() => {
  const NUMBERS = ["temperature", "top_p", "max_tokens", "seed"];
  const TEXTS = ["system", "tools", "model"];
  const form = $("settings-form");

  function open(atKey = false) {
    const settings = chat.settings();
    showModels(settings.model);
    for (const name of [...NUMBERS, "system", "tools"]) form.elements[name].value = settings[name] ?? "";
    $("api-key").value = store.apiKey.read();
    $("keep-key").checked = store.apiKey.isKept();
    showToolsError();
    $("settings").showModal();
    if (atKey) $("api-key").focus();
  }

  // A choice is only offered where there is one.
  function showModels(chosen) {
    const models = chat.models();
    setHidden($("model-field"), models.length < 2);
    form.elements.model.replaceChildren(...models.map((model) => el("option", { value: model.id }, model.id)));
    if (chosen) form.elements.model.value = chosen;
  }

  // Why the tools cannot be sent; empty if they can.
  function toolsError(text) {
    if (!text.trim()) return "";
    try {
      return Array.isArray(JSON.parse(text)) ? "" : "A list of functions is needed: [ ... ]";
    } catch (error) {
      return `This is no JSON: ${error.message}`;
    }
  }

  function showToolsError() {
    const text = toolsError(form.elements.tools.value);
    setText($("tools-error"), text);
    form.elements.tools.setCustomValidity(text);
  }

  function keep() {
    const settings = {};
    for (const name of NUMBERS) {
      const field = form.elements[name];
      if (field.value !== "" && field.validity.valid) settings[name] = field.valueAsNumber;
    }
    for (const name of TEXTS) {
      const text = form.elements[name].value.trim();
      if (text) settings[name] = text;
    }
    if (chat.models().length < 2) delete settings.model;
    if (settings.tools && toolsError(settings.tools)) delete settings.tools;
    store.settings.write(settings);
    const conversation = chat.current();
    if (conversation) { conversation.settings = settings; store.save(conversation); }
    const key = $("api-key").value.trim();
    const hadKey = store.apiKey.read();
    store.apiKey.write(key, $("keep-key").checked);
    if (key !== hadKey) { chat.loadModels(); cluster.refresh(); }
  }

  function start() {
    $("open-settings").append(icon("tune"));
    $("open-settings").addEventListener("click", () => open());
    form.elements.tools.addEventListener("input", showToolsError);
    // However it is closed, what was entered counts; what is wrong is left out.
    $("settings").addEventListener("close", keep);
  }

  return { start, open };
})();
