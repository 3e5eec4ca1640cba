// Talking to the server: requests, streamed answers, and errors in a person's words.

const api = (() => {
  // What goes wrong, for people: `title` says what, `advice` what to do, `detail` what the server said.
  class ServerError extends Error {
    constructor({ title, advice = "", detail = "", kind = "", retryAfter = 0 }) {
      super(title);
      Object.assign(this, { title, advice, detail, kind, retryAfter });
    }
  }

  function headers(extra) {
    const key = store.apiKey.read();
    return key ? { ...extra, Authorization: "Bearer " + key } : extra;
  }

  // Errors: ServerError; AbortError once `signal` is aborted.
  async function request(path, options = {}) {
    let response;
    try {
      response = await fetch(path, { ...options, cache: "no-store", credentials: "same-origin",
                                     redirect: "error", headers: headers(options.headers || {}) });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw unreachable();
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }

  const getJson = async (path, signal) => (await request(path, { signal })).json();

  function unreachable() {
    return new ServerError({
      title: "The server cannot be reached",
      advice: "See whether it still runs and whether this machine's network is up, then try again. " +
        "Nothing of the conversation is lost.",
      kind: "unreachable",
    });
  }

  async function refusal(response) {
    const text = await response.text().catch(() => "");
    let body = null;
    try { body = JSON.parse(text).error; } catch { /* a proxy's own page, say */ }
    if (typeof body === "string") body = { message: body };
    return explained(response.status, body || { message: text.slice(0, 300) },
                     Number(response.headers.get("retry-after")) || 0);
  }

  // What happened, what to do, and which button helps.
  const REFUSALS = {
    400: ["The server cannot do this as asked",
          "See what it says, change the question or the settings, and try again.", "settings"],
    401: ["The server asks for an API key", "Enter the key that the server was started with.", "key"],
    403: ["The server does not allow this", "Ask whoever runs it, or use another key.", "key"],
    404: ["The server does not know what was asked for",
          "Choose another model in the settings. If there is none, reload the page: the server may be another one now.",
          "settings"],
    413: ["The question is too large for the server", "Shorten it, or begin a new conversation."],
    422: ["The server cannot do this as asked",
          "See what it says, change the question or the settings, and try again.", "settings"],
    429: ["The server is busy", "It has as many requests as it takes. Try again in a moment.", "busy"],
    503: ["The cluster cannot answer at the moment",
          "A worker may have gone. See Cluster for what it waits for, and try again.", "busy"],
  };
  const WRONG_KEY = ["The server does not accept this API key", REFUSALS[401][1], "key"];
  const LOADING = ["The model is still loading",
                   "Its progress is shown under Cluster. Try again once it is ready.", "busy"];

  // By status and by the API's `code` and `type`.
  function explained(status, body, retryAfter) {
    const detail = [body.message, body.hint].filter((part) => typeof part === "string" && part).join(" ");
    const error = (title, advice, kind = "") => new ServerError({ title, advice, detail, kind, retryAfter });
    const code = `${body.code ?? ""} ${body.type ?? ""}`;
    if (/context_length|exceed_context/.test(code)) {
      const need = body.n_prompt_tokens;
      const have = body.n_ctx;
      return error(need && have
        ? `The conversation is too long: ${words.count(need)} tokens, where ${words.count(have)} fit`
        : "The conversation is too long for the model",
      "Begin a new conversation, or edit an earlier question to go on from there with less.", "context");
    }
    const isLoading = status === 503 && /load/i.test(code + detail);
    const known = isLoading ? LOADING : status === 401 && store.apiKey.read() ? WRONG_KEY : REFUSALS[status];
    if (known) return error(...known);
    if (status >= 500) return error("The server failed", "Try again. If it stays, its log says more.");
    return error(`The server answered with status ${status}`, "Try again. If it stays, its log says more.");
  }

  // --- Server-sent events ------------------------------------------------------------------------

  // Yields the data of each event of a response's body.
  async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let data = [];
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const lines = (rest + value).split(/\r\n|\n/);
        rest = lines.pop();
        for (const line of lines) {
          if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
          else if (line === "" && data.length) { yield data.join("\n"); data = []; }
        }
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  function broken() {
    return new ServerError({
      title: "The connection broke before the answer was complete",
      advice: "What has come stays above. Try again to have the whole answer.",
      kind: "broken",
    });
  }

  // Streams the answer to `body`; calls `take` with each chunk. Errors: as request(), and for an
  // answer without an end.
  async function answer(body, signal, take) {
    const response = await request("v1/chat/completions", {
      method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    let ended = false;
    try {
      for await (const data of events(response.body)) {
        if (data === "[DONE]") { ended = true; break; }
        const chunk = JSON.parse(data);
        if (chunk.error) throw explained(Number(chunk.error.code) || 500, chunk.error, 0);
        take(chunk);
      }
    } catch (error) {
      if (error.name === "AbortError" || error instanceof ServerError) throw error;
      throw broken();
    }
    if (!ended) throw broken();
  }

  const models = async () => (await getJson("v1/models")).data || [];
  const cluster = (signal) => getJson("cluster", signal);

  return { answer, models, cluster, ServerError };
})();
