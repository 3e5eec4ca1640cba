// The cluster as it is now: asks `GET cluster` once a second and shows what has changed.
//
// What is shown, and moves: the state, figures, the model's layers cut into stages, a card for each
// node, and what has happened since the page is open. Elements are kept from one answer to the next,
// by node, so that a change is a movement and not a new picture.

const cluster = (() => {
  const POLL_MS = 1000;
  const POLL_UNSEEN_MS = 5000;  // only the mark beside the button is seen then
  const RATES_MAX = 120;
  const EVENTS_MAX = 30;
  const STATE_KINDS = { ready: "good", loading: "busy", waiting: "busy", joined: "busy", spare: "calm",
                        degraded: "bad", lost: "bad", stopping: "bad" };

  let shown = false;
  let last = null;          // the last answer
  let timer = 0;
  let fails = 0;
  let failedAt = null;
  const rates = [];         // measured tokens/s, one for each answer
  const cards = new Map();  // node name -> card
  const stages = new Map(); // stage index -> segment
  let parts = null;

  // --- Asking ------------------------------------------------------------------------------------

  const wide = matchMedia("(min-width: 1700px)");
  const isSeen = () => shown || wide.matches;

  async function poll() {
    clearTimeout(timer);
    if (document.hidden) return;  // visibilitychange goes on
    try {
      const status = await api.cluster(AbortSignal.timeout(8000));
      fails = 0;
      show(status);
    } catch (error) {
      fails++;
      showFailure(error);
    }
    clearTimeout(timer);
    timer = setTimeout(poll, isSeen() ? POLL_MS * Math.min(1 + fails, 5) : POLL_UNSEEN_MS);
  }

  // --- The frame ---------------------------------------------------------------------------------

  function figure(name, hint = null) {
    const value = el("dd");
    return { node: el("div", { title: hint }, el("dt", null, name), value), value };
  }

  function build() {
    const spark = $("spark").content.firstElementChild.cloneNode(true);
    parts = {
      trouble: el("p.trouble", { role: "alert", hidden: true }),
      name: el("h2"),
      state: el("span.state"),
      epoch: el("span.hint"),
      detail: el("p.detail"),
      measured: figure("measured", "tokens per second over all answers, as measured lately"),
      predicted: figure("predicted", "tokens per second of one answer, as the plan expects"),
      live: figure("answering"),
      waiting: figure("in the queue"),
      memory: figure("memory"),
      nodes: figure("nodes"),
      spark,
      layersTitle: el("figcaption"),
      bar: el("ol.layers"),
      cards: el("ul.cards"),
      events: el("ol.events", { role: "log", "aria-label": "What has happened" }),
      noEvents: el("p.hint", null, "Workers that join or go will be noted here."),
    };
    parts.measured.node.classList.add("with-spark");
    parts.measured.node.append(spark);
    $("cluster-body").append(
      parts.trouble,
      el("header", null, parts.name, parts.state, parts.epoch), parts.detail,
      el("dl.figures", null, ["measured", "predicted", "live", "waiting", "memory", "nodes"].map((name) => parts[name].node)),
      el("figure", null, parts.layersTitle, parts.bar),
      el("h3", null, "Nodes"), parts.cards,
      el("h3", null, "Since this page is open"), parts.noEvents, parts.events);
  }

  // --- Showing an answer -------------------------------------------------------------------------

  function show(status) {
    setHidden(parts.trouble, true);
    failedAt = null;
    const nodes = ordered(status.nodes || []);
    noteChanges(last, status);
    setText(parts.name, status.model || "No model yet");
    showState(parts.state, status.state);
    setText(parts.epoch, status.epoch ? `epoch ${status.epoch}` : "");
    setText(parts.detail, status.detail || "");
    setHidden(parts.detail, !status.detail);
    showFigures(status, nodes);
    showLayers(nodes);
    showCards(nodes);
    showMark(status.state, `${words.plural(nodes.filter((node) => node.state !== "lost").length, "node")}`);
    last = status;
  }

  function putAt(parent, at, node) {
    if (parent.children[at] !== node) parent.insertBefore(node, parent.children[at] || null);
  }

  // Head to tail, then those without layers.
  function ordered(nodes) {
    const rank = (node) => (node.stage ? node.stage.index : Infinity);
    return [...nodes].sort((a, b) => (rank(a) === rank(b) ? a.name.localeCompare(b.name) : rank(a) - rank(b)));
  }

  function showState(node, state) {
    setText(node, state);
    node.className = `state ${STATE_KINDS[state] || "calm"}`;
  }

  function showMark(state, text) {
    $("pill-dot").className = `dot ${STATE_KINDS[state] || "calm"}`;
    setText($("pill-text"), text);
    $("view-cluster").title = `Cluster: ${state}`;
  }

  function showFigures(status, nodes) {
    const rate = status.measured_tokens_per_s || 0;
    rates.push(rate);
    if (rates.length > RATES_MAX) rates.shift();
    const rateText = (value) => (value > 0 ? `${words.rate(value)} tok/s` : "–");
    setText(parts.measured.value, rateText(rate));
    setText(parts.predicted.value, rateText(status.predicted_tokens_per_s));
    setText(parts.live.value, words.count(status.live_sequences || 0));
    setText(parts.waiting.value, words.count(status.waiting_sequences || 0));
    const sum = (name) => nodes.reduce((total, node) => total + (node[name] || 0), 0);
    setText(parts.memory.value, words.share(sum("used_bytes"), sum("memory_limit_bytes")));
    setText(parts.nodes.value, words.count(nodes.length));
    showSpark();
  }

  function showSpark() {
    const most = Math.max(...rates, 1);
    const from = RATES_MAX - rates.length;
    const points = rates.map((rate, at) => `${from + at},${(29 - 27 * rate / most).toFixed(1)}`);
    const [area, line] = parts.spark.children;
    line.setAttribute("points", points.join(" "));
    area.setAttribute("points", [`${from},30`, ...points, `${RATES_MAX - 1},30`].join(" "));
  }

  // --- The layers --------------------------------------------------------------------------------

  const layerCount = (stage) => stage.layer_end - stage.layer_begin;

  function layersText(stage) {
    const { layer_begin: first, layer_end: end } = stage;
    const layers = end - first === 1 ? `layer ${first}` : `layers ${first}–${end - 1}`;
    return [stage.has_embedding && "embedding", end > first && layers, stage.has_head && "output head"]
      .filter(Boolean).join(", ");
  }

  function showLayers(nodes) {
    const holders = nodes.filter((node) => node.stage && node.state !== "lost");
    const total = holders.reduce((sum, node) => sum + layerCount(node.stage), 0);
    const title = `${words.plural(total, "layer")} in ${words.plural(holders.length, "stage")}`;
    setText(parts.layersTitle, holders.length ? title : "No layers are placed yet");
    const left = new Set(stages.keys());
    holders.forEach((node, at) => {
      left.delete(node.stage.index);
      if (!stages.has(node.stage.index)) stages.set(node.stage.index, segment());
      const one = stages.get(node.stage.index);
      updateSegment(one, node, holders[at + 1]);
      putAt(parts.bar, at, one.node);
    });
    for (const index of left) { stages.get(index).node.remove(); stages.delete(index); }
  }

  function segment() {
    const one = { range: el("b"), name: el("span"), done: el("i.done"), hop: el("small.hop") };
    one.node = el("li", null, el("div.segment", null, one.done, one.range, one.name), one.hop);
    return one;
  }

  function updateSegment(one, node, next) {
    const { stage } = node;
    const count = layerCount(stage);
    one.node.style.flexGrow = String(Math.max(count, 0.6));
    one.node.dataset.stage = String(stage.index % 8);
    one.node.style.setProperty("--layers", String(Math.max(count, 1)));
    setText(one.range, count ? `${stage.layer_begin}–${stage.layer_end - 1}` : "head");
    setText(one.name, node.name);
    const share = loadShare(node);
    one.node.classList.toggle("loading", share !== null);
    one.done.style.width = `${100 * (share ?? 1)}%`;
    one.node.title = `${node.name}: ${layersText(stage)}`;
    const hop = node.hop_us || stage.hop_us || 0;
    setText(one.hop, next && hop > 0 ? `→ ${words.duration(hop / 1000)}` : "");
  }

  // How much of its layers a node has; null if it loads nothing.
  function loadShare(node) {
    const { load } = node;
    if (load && load.total_bytes > 0) return Math.min(load.done_bytes / load.total_bytes, 1);
    return node.state === "loading" ? 0 : null;
  }

  // --- The nodes ---------------------------------------------------------------------------------

  function showCards(nodes) {
    const left = new Set(cards.keys());
    nodes.forEach((node, at) => {
      left.delete(node.name);
      if (!cards.has(node.name)) cards.set(node.name, card());
      const one = cards.get(node.name);
      updateCard(one, node, nodes);
      putAt(parts.cards, at, one.node);
    });
    for (const name of left) { cards.get(name).node.remove(); cards.delete(name); }
    if (!nodes.length && !parts.empty) {
      parts.empty = el("p.hint", null, "No worker has joined yet. Start one with: strata worker --join ADDRESS");
      parts.cards.after(parts.empty);
    }
    if (parts.empty) setHidden(parts.empty, nodes.length > 0);
  }

  function card() {
    const one = {
      name: el("h4"), state: el("span.state"), layers: el("p.layers-text"), detail: el("p.detail"),
      meter: el("div.meter", { role: "img" }), memory: el("p.memory-text"), parts: el("p.hint"),
      loading: el("progress", { max: 1 }), loadText: el("p.hint"), facts: el("dl.facts"),
    };
    one.segments = ["weights", "kv", "compute", "other"].map((kind) => el(`i.${kind}`));
    one.meter.append(...one.segments);
    const head = el("header", null, el("i.swatch", { "aria-hidden": "true" }), one.name, one.state);
    one.node = el("li.card", null, head, one.layers, one.detail, one.loading, one.loadText, one.meter, one.memory, one.parts, one.facts);
    return one;
  }

  function updateCard(one, node, nodes) {
    const { stage } = node;
    one.node.dataset.stage = stage && node.state !== "lost" ? String(stage.index % 8) : "none";
    one.node.classList.toggle("lost", node.state === "lost");
    setText(one.name, node.name);
    showState(one.state, node.state);
    setText(one.layers, stage ? `Stage ${stage.index}: ${layersText(stage)}` : "Holds no layers");
    setText(one.detail, node.detail || "");
    setHidden(one.detail, !node.detail);
    showLoad(one, node);
    showMemory(one, node, nodes);
    showFacts(one.facts, node);
  }

  function showLoad(one, node) {
    const share = loadShare(node);
    setHidden(one.loading, share === null);
    setHidden(one.loadText, share === null);
    if (share === null) return;
    one.loading.value = share;
    one.loading.setAttribute("aria-label", `${node.name} loads`);
    const { done_bytes: done, total_bytes: total } = node.load || {};
    setText(one.loadText, node.load ? `${Math.floor(100 * share)} %: ${words.share(done, total)} loaded`
                                    : "Begins to load");
  }

  // Stages in one process share its memory, which only the first of them names.
  function sharedLimit(node, nodes) {
    const first = nodes.find((other) => other.process_id === node.process_id && other.memory_limit_bytes);
    return first ? first.memory_limit_bytes : 0;
  }

  function showMemory(one, node, nodes) {
    const limit = node.memory_limit_bytes || 0;
    const used = node.used_bytes || 0;
    const stage = node.stage || {};
    const named = [stage.weights_bytes || 0, stage.kv_bytes || 0, stage.compute_bytes || 0];
    const other = Math.max(used - named.reduce((sum, value) => sum + value, 0), 0);
    // While it loads, a node uses less than its parts will need: the bar shows what is used.
    const fits = named.reduce((sum, value) => sum + value, 0) <= used;
    const widths = fits ? [...named, other] : [used, 0, 0, 0];
    const whole = Math.max(limit || sharedLimit(node, nodes), used, 1);
    one.segments.forEach((segment, at) => { segment.style.width = `${100 * widths[at] / whole}%`; });
    const text = limit ? words.share(used, limit) : words.bytes(used);
    setText(one.memory, text);
    one.meter.setAttribute("aria-label", `Memory: ${text}`);
    const names = ["weights", "KV cache", "compute"];
    setText(one.parts, named.map((value, at) => value && `${words.bytes(value)} ${names[at]}`)
      .filter(Boolean).join(" · "));
  }

  function stepText(node) {
    if (!(node.step_us > 0)) return "";
    const forecast = node.forecast_us > 0 ? `, foretold ${words.duration(node.forecast_us / 1000)}` : "";
    return words.duration(node.step_us / 1000) + forecast;
  }

  function showFacts(list, node) {
    const hop = node.hop_us || node.stage?.hop_us || 0;
    const facts = [
      ["address", node.address],
      ...(node.devices || []).map((device) => ["device", device.description || device.name]),
      ["steps", words.count(node.steps_done || 0)],
      ["a step", stepText(node)],
      ["hop", hop > 0 ? words.duration(hop / 1000) : ""],
      // A process does not hear from itself.
      ["heard", node.address ? `${words.duration(node.last_heartbeat_ms || 0)} ago` : ""],
      ["process", node.process_id ? String(node.process_id) : ""],
    ].filter(([, value]) => value);
    facts.forEach(([name, value], at) => {
      if (!list.children[at]) list.append(el("div", null, el("dt"), el("dd")));
      setText(list.children[at].children[0], name);
      setText(list.children[at].children[1], value);
    });
    while (list.children.length > facts.length) list.lastChild.remove();
  }

  // --- What has happened -------------------------------------------------------------------------

  function noteChanges(before, now) {
    if (!before) return;
    const old = new Map((before.nodes || []).map((node) => [node.name, node]));
    for (const node of now.nodes || []) {
      const was = old.get(node.name);
      old.delete(node.name);
      if (!was) note(`${node.name} joined`, "good");
      else if (was.state !== node.state) note(`${node.name} is ${node.state}`, STATE_KINDS[node.state]);
      else if (was.process_id !== node.process_id) note(`${node.name} was started again`, "busy");
    }
    for (const name of old.keys()) note(`${name} is gone`, "bad");
    if (before.state !== now.state) note(`The cluster is ${now.state}`, STATE_KINDS[now.state]);
    if (before.epoch !== now.epoch && now.epoch) note(`New plan, epoch ${now.epoch}`, "calm");
  }

  function note(text, kind = "calm") {
    setHidden(parts.noEvents, true);
    const time = el("time", null, words.clock(new Date()));
    parts.events.prepend(el("li", null, time, el(`span.dot.${kind}`), el("span", null, text)));
    while (parts.events.children.length > EVENTS_MAX) parts.events.lastChild.remove();
  }

  function showFailure(error) {
    const since = (failedAt = failedAt || new Date());
    if (fails === 1 && last) note("No word from the server", "bad");
    const what = error instanceof api.ServerError ? error.message : "The server does not answer";
    setText(parts.trouble, error.kind === "key" ? `${what}. ${error.advice}`
                                                : `${what} since ${words.clock(since)}. Asking again.`);
    setHidden(parts.trouble, false);
    showMark("lost", "no contact");
    if (!last) setText(parts.name, "Cluster");
  }

  function start() {
    build();
    document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
    wide.addEventListener("change", poll);
    poll();
  }

  return {
    start,
    refresh: poll,
    setShown(value) { const was = shown; shown = value; if (value && !was && parts) poll(); },
  };
})();
