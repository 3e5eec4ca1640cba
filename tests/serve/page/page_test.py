"""The page in a headless Chromium, over a server that answers by the book (mock_server.py): what a person does and sees.

Usage: page_test.py PAGE.html [TEST ...]. Exit code 77, which ctest shows as skipped, where no Chromium is installed.
"""
import copy
import json
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import browser as browsers
import mock_server

PAGE = ""
ANSWER_LAST = "[...document.querySelectorAll('.turn.assistant')].at(-1)"


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browsers.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def setUp(self):
        self.server = mock_server.start(PAGE)
        self.state = self.server.state
        self.state.delay_s = 0.002
        self.page = self.browser.open(self.server.url)
        self.addCleanup(self.end)

    def end(self):
        requests = [event["request"]["url"] for event in self.page.events("Network.requestWillBeSent")]
        outside = [url for url in requests if not url.startswith((self.server.url, "data:", "blob:"))]
        thrown = self.page.events("Runtime.exceptionThrown")
        refused = [event["entry"]["text"] for event in self.page.events("Log.entryAdded") if event["entry"]["source"] == "security"]
        self.browser.call("Target.closeTarget", targetId=self.page.target)
        self.server.end()
        self.assertEqual(outside, [], "requests that leave the origin")
        self.assertEqual(thrown, [], "errors of the page's script")
        self.assertEqual(refused, [], "what the page's own policy forbids it")

    # --- What a person does ------------------------------------------------------------------------

    def write(self, text):
        self.page.run("document.getElementById('question').focus()")
        self.page.type(text)

    def ask(self, text, wait=True):
        asked = len(self.state.requests)
        self.write(text)
        self.page.press("Enter")
        if wait:
            end = time.monotonic() + 20
            while len(self.state.requests) == asked and time.monotonic() < end:
                time.sleep(0.02)
            self.settle()

    def settle(self):
        self.page.wait("document.querySelector('.turn.assistant') && !document.querySelector('.turn.busy')")

    def click(self, selector):
        self.page.run(f"document.querySelector({json.dumps(selector)}).click()")

    def text(self, selector):
        return self.page.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    def answer(self):
        return self.page.run(ANSWER_LAST + ".querySelector(':scope > .markdown').innerText")

    # --- Chat --------------------------------------------------------------------------------------

    def test_streams_an_answer_and_counts_its_tokens(self):
        self.state.delay_s = 0.05
        self.ask("Hello", wait=False)
        self.page.wait(ANSWER_LAST + "?.innerText.includes('You said')")
        self.assertTrue(self.page.run("document.querySelector('.turn.busy') !== null"), "shown while it comes")
        self.settle()
        self.assertEqual(self.answer(), "You said: Hello. That is turn 1.")
        self.assertRegex(self.text(".facts"), r"^\d+ tokens · [\d.]+ tokens/s · first after .+ · 812 read, 640 of them known$")
        self.ask("And now?")
        self.assertEqual([message["role"] for message in self.state.requests[-1]["messages"]], ["user", "assistant", "user"])
        self.assertEqual(self.state.requests[-1]["model"], "qwen3-1.7b-q4_k_m")

    def test_shift_enter_begins_a_line(self):
        self.write("one")
        self.page.press("Enter", shift=True)
        self.page.type("two")
        self.page.press("Enter")
        self.settle()
        self.assertEqual(self.state.requests[0]["messages"][0]["content"], "one\ntwo")

    def test_escape_stops_and_the_server_hears_of_it(self):
        self.ask("Endless", wait=False)
        self.page.wait(ANSWER_LAST + "?.innerText.includes('word')")
        self.page.press("Escape")
        self.settle()
        self.assertIn("Stopped.", self.page.run(ANSWER_LAST + ".innerText"))
        end = time.monotonic() + 10
        while not self.state.cancelled and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.state.cancelled, 1)
        self.ask("Hello")  # and it goes on
        self.assertIn("word", self.state.requests[-1]["messages"][1]["content"])

    def test_an_edited_question_is_a_branch(self):
        self.ask("First")
        self.ask("Second")
        self.click(".turn.user button[aria-label='Edit this question']")
        self.page.run("document.querySelector('form.edit textarea').select()")
        self.page.type("Other")
        self.page.press("Enter")
        self.settle()
        self.assertEqual([message["content"] for message in self.state.requests[-1]["messages"]], ["Other"])
        self.assertEqual(self.page.run("document.querySelectorAll('.turn').length"), 2)
        self.assertEqual(self.text(".turn.user .branches .count"), "2/2")
        self.click(".turn.user button[aria-label='Earlier version']")
        self.assertEqual(self.page.run("[...document.querySelectorAll('.bubble')].map((node) => node.innerText)"), ["First", "Second"])

    def test_answers_again_beside_the_first(self):
        self.ask("Hello")
        self.click("button[aria-label='Answer again']")
        self.settle()
        self.assertEqual(len(self.state.requests), 2)
        self.assertEqual(self.state.requests[0]["messages"], self.state.requests[1]["messages"])
        self.assertEqual(self.text(".turn.assistant .branches .count"), "2/2")

    def test_reasoning_is_folded_and_not_sent_back(self):
        self.ask("Think about it")
        self.assertTrue(self.text("details.reasoning summary").startswith("Thought for"))
        self.assertFalse(self.page.run("document.querySelector('details.reasoning').open"))
        self.click("details.reasoning summary")
        self.page.wait("document.querySelector('details.reasoning').innerText.includes('two thirds')")
        self.ask("Go on")
        self.assertEqual(self.state.requests[-1]["messages"][1], {"role": "assistant", "content": "Two thirds to one third."})

    def test_calls_are_shown_and_their_results_go_back(self):
        self.ask("Weather in Paris?")
        self.assertEqual(self.text(".call summary").strip(), "get_weather")
        self.assertEqual(json.loads(self.text(".call pre")), {"city": "Paris", "days": 3})
        self.page.run("document.querySelector('form.results textarea').focus()")
        self.page.type("rain")
        self.click("form.results button")
        self.page.wait("document.querySelectorAll('.turn').length === 4")
        self.settle()
        call, result = self.state.requests[-1]["messages"][1:]
        self.assertEqual(call["tool_calls"][0]["function"], {"name": "get_weather", "arguments": '{"city": "Paris", "days": 3}'})
        self.assertEqual(result, {"role": "tool", "tool_call_id": "call_1", "content": "rain"})

    def test_settings_go_with_each_question(self):
        self.page.press(",", alt=True, code="Comma")
        self.page.wait("document.getElementById('settings').open")
        self.page.run("""{ const fields = document.getElementById('settings-form').elements;
            fields.system.value = 'Be brief'; fields.temperature.value = '0'; fields.top_p.value = '0.9';
            fields.max_tokens.value = '64'; fields.seed.value = '7'; }""")
        self.click("#settings footer button")
        self.page.wait("localStorage.getItem('strata.settings')?.includes('Be brief')")
        self.ask("Hello")
        body = self.state.requests[-1]
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be brief"})
        self.assertEqual({name: body[name] for name in ("temperature", "top_p", "max_tokens", "seed")},
                         {"temperature": 0, "top_p": 0.9, "max_tokens": 64, "seed": 7})

    def test_key_is_asked_for_and_kept_where_it_should_be(self):
        self.state.key = "secret"
        self.ask("Hello", wait=False)
        self.page.wait("document.querySelector('.problem strong')?.innerText === 'The server asks for an API key'")
        self.click(".problem .row button:last-child")
        self.assertEqual(self.page.run("document.activeElement.id"), "api-key")
        self.page.type("secret")
        self.click("#settings footer button")
        self.page.wait("sessionStorage.getItem('strata.api-key') === 'secret'")
        self.assertIsNone(self.page.run("localStorage.getItem('strata.api-key')"))
        self.click(".problem .row button")
        self.page.wait(ANSWER_LAST + ".innerText.includes('You said: Hello')")
        self.page.run("settingsDialog.open(true)")
        self.page.run("document.getElementById('keep-key').checked = true")
        self.click("#settings footer button")
        self.page.wait("localStorage.getItem('strata.api-key') === 'secret' && !sessionStorage.getItem('strata.api-key')")
        self.page.run("localStorage.clear()")

    # --- What goes wrong ---------------------------------------------------------------------------

    def test_errors_say_what_to_do_and_can_be_tried_again(self):
        self.ask("Busy?")
        self.assertEqual(self.text(".problem strong"), "The cluster cannot answer at the moment")
        self.assertIn("no other node has room for its 7 layers", self.text(".problem .said"))
        self.assertIn("asks to wait", self.text(".problem small"))
        self.click(".problem .row button")
        self.page.wait(ANSWER_LAST + ".innerText.includes('You said: Busy?')")
        self.settle()
        self.assertEqual(self.page.run("document.querySelectorAll('.turn').length"), 2)

    def test_an_answer_that_breaks_off_keeps_what_came(self):
        for question, title in (("Cut it", "The connection broke before the answer was complete"), ("Fails", "The server failed")):
            self.ask(question)
            self.assertEqual(self.page.run(ANSWER_LAST + ".querySelector('.problem strong').innerText"), title)
            self.assertRegex(self.answer(), "^This (answer breaks off in the mid|one begins well, but)$")

    def test_a_context_that_is_full_names_both_numbers(self):
        self.ask("Toolong")
        self.assertEqual(self.text(".problem strong"), "The conversation is too long: 9,120 tokens, where 8,192 fit")

    def test_a_server_that_is_gone_is_said_so(self):
        self.server.end()
        self.ask("Hello", wait=False)
        self.page.wait("document.querySelector('.problem strong')?.innerText === 'The server cannot be reached'")

    # --- Text stays text ---------------------------------------------------------------------------

    def test_html_and_scripts_in_an_answer_stay_text(self):
        self.ask("html")
        self.page.run("new Promise((done) => setTimeout(done, 300))")
        self.assertIsNone(self.page.run("window.broken ?? null"))
        shown = self.answer()
        for part in ("<script>window.broken = 1</script>", '<img src=x onerror="window.broken = 2">', "<iframe src=", "<i>bold</i>",
                     "<style>body{display:none}</style>", '<svg onload="window.broken=4">', "&lt;b&gt;", "(javascript:window.broken=3)",
                     '<script src="https://example.com/x.js"></script>'):
            self.assertIn(part, shown)
        self.assertEqual(self.page.run("document.querySelectorAll('#messages :is(script, img, iframe, style, object, embed, link, base)').length"), 0)
        links = self.page.run("[...document.querySelectorAll('#messages .markdown a')].map((node) => [node.protocol, node.rel, node.target])")
        self.assertGreater(len(links), 2)
        self.assertEqual({tuple(link) for link in links}, {("https:", "noopener noreferrer nofollow", "_blank")})

    def test_the_policy_holds_even_if_the_script_fails_to(self):
        self.assertTrue(self.page.run("""(() => { try { document.body.innerHTML = '<b>x</b>'; return false; } catch { return true; } })()"""))
        self.assertFalse(self.page.run("""(() => { const node = document.createElement('script'); node.append('window.broken = 6');
            try { document.body.append(node); } catch {} return window.broken === 6; })()"""))
        with self.browser.arrived:  # these breaches were ours
            self.browser.events = [event for event in self.browser.events if event["method"] != "Log.entryAdded"]

    def test_markdown(self):
        cases = {
            "# One\n\ntext": "h3:One|p:text",
            "- a\n  - b\n- [x] c": "ul:a b c",
            "1. a\n\n   more\n2. b": "ol:a more b",
            "a **b** *c* `d*` ~~e~~ snake_case_name 2*3*4": "p:a b c d* e snake_case_name 234",
            "| a | b |\n|---|--:|\n| 1 | 2 |\n| 3 |": "div:a b 1 2 3",
            "```py\nx = 1\n\ny\n```\nafter": "div:py x = 1 y|p:after",
            "> a\n> b\n\nc": "blockquote:a b|p:c",
            "***both*** and **open": "p:both and **open",
            "a\n***\nb": "p:a|hr:|p:b",
            "\\*no\\* <b>": "p:*no* <b>",
            "in\n1989. That": "p:in 1989. That",
            "~~~\n```\n~~~": "div:code ```",
        }
        for source, expected in cases.items():
            shown = self.page.run(f"""(() => {{ const node = document.createElement('div'); node.style.whiteSpace = 'pre'; document.body.append(node);
                markdown.render(node, {json.dumps(source)});
                const text = [...node.children].map((child) => child.localName + ':' + child.innerText.replace(/\\s+/g, ' ').trim()).join('|');
                node.remove(); return text; }})()""")
            self.assertEqual(shown, expected, source)

    def test_markdown_is_the_same_however_it_is_streamed(self):
        same = self.page.run(f"""(() => {{
            const text = {json.dumps(mock_server.LONG + mock_server.HOSTILE)};
            const whole = document.createElement('div'), parts = document.createElement('div');
            markdown.render(whole, text);
            for (let end = 1; end <= text.length; end += 3) markdown.render(parts, text.slice(0, end));
            markdown.render(parts, text);
            return whole.isEqualNode(parts); }})()""")
        self.assertTrue(same)

    def test_hostile_markdown_takes_no_time(self):
        for source in ("'*a '.repeat(50000)", "'*a **b '.repeat(30000) + '*'.repeat(1000)", "'['.repeat(100000)", "'[a]('.repeat(40000)", "'`'.repeat(50000) + 'a'",
                       "'` `` '.repeat(20000)", "'> '.repeat(50000)", "'- '.repeat(50000)", "'# ' + ' #'.repeat(50000) + 'x'", "'_a'.repeat(100000)",
                       "'a|'.repeat(20000) + '\\n' + '-|'.repeat(20000) + ' '.repeat(20000) + 'x'", "'https://a.b/' + ')'.repeat(100000)",
                       "'```' + ' a'.repeat(50000) + '`'", "'```js\\n' + '/*'.repeat(50000)", "'-'.repeat(100000) + 'x'", "' '.repeat(100000) + 'x'", "'\\n'.repeat(200000)"):
            took = self.page.run(f"""Math.min(...[1, 2, 3].map(() => {{ const node = document.createElement('div'); const text = {source};
                const from = performance.now(); markdown.render(node, text); return performance.now() - from; }}))""")
            self.assertLess(took, 1500, source)

    # --- Conversations -----------------------------------------------------------------------------

    def test_conversations_are_kept_renamed_exported_and_deleted(self):
        self.ask("First one")
        self.page.press("n", alt=True, code="KeyN")
        self.ask("Second one")
        titles = "[...document.querySelectorAll('#conversations .open')].map((node) => node.innerText)"
        self.assertEqual(self.page.run(titles), ["Second one", "First one"])
        self.page.go(self.server.url)
        self.assertEqual(self.page.run(titles), ["Second one", "First one"])
        self.click("#conversations li:last-child .open")
        self.assertEqual(self.answer(), "You said: First one. That is turn 1.")
        self.click("button[aria-label='Rename “First one”']")
        self.page.run("document.querySelector('#conversations input').select()")
        self.page.type("A name")
        self.page.press("Enter")
        self.assertIn("A name", self.page.run(titles))
        exported = json.loads(self.page.run("store.exported(store.all())"))
        self.assertEqual({conversation["title"] for conversation in exported["conversations"]}, {"A name", "Second one"})
        self.click("button[aria-label='Delete “A name”']")
        self.assertEqual(self.page.run(titles), ["Second one"])
        self.click(".toast button.quiet")  # undo
        self.assertIn("A name", self.page.run(titles))
        self.page.run("localStorage.clear(); sidebar.update()")
        self.assertEqual(self.page.run(f"store.imported({json.dumps(json.dumps(exported))}).length"), 2)
        self.assertIsNone(self.page.run("store.imported('{\"format\": \"strata-conversations\", \"conversations\": [{\"id\": \"../x\"}]}')"))
        self.page.run("localStorage.clear()")

    def test_a_reader_elsewhere_is_left_there(self):
        self.ask("Plan a split")
        self.state.delay_s = 0.01
        self.ask("Plan another", wait=False)
        self.page.wait("document.querySelectorAll('.turn').length === 4")
        place = "Math.round(document.getElementById('scroll').scrollTop)"
        end = "document.getElementById('scroll').scrollHeight - document.getElementById('scroll').clientHeight"
        self.page.wait(f"{end} - {place} < 2 && {ANSWER_LAST}.innerText.length > 300")
        self.page.run("document.getElementById('scroll').scrollTop = 40")
        self.page.wait("!document.getElementById('to-end').hidden")
        self.settle()
        self.assertEqual(self.page.run(place), 40)
        self.click("#to-end")
        self.page.wait(f"{end} - {place} < 2")

    def test_a_deleted_conversation_stays_deleted_while_it_answers(self):
        self.ask("Endless", wait=False)
        self.page.wait(ANSWER_LAST + "?.innerText.includes('word')")
        self.click("button[aria-label='Delete “Endless”']")
        self.page.run("new Promise((done) => setTimeout(done, 500))")
        self.assertEqual(self.page.run("store.all().length"), 0)
        self.click(".toast button.quiet")
        self.click("#conversations .open")
        self.assertIn("Stopped.", self.page.run(ANSWER_LAST + ".innerText"))

    def test_an_imported_file_may_hold_anything(self):
        message = {"role": "assistant", "parent": "a", "content": 7, "usage": None, "timings": "x", "calls": [{"id": 1}, None], "error": "no",
                   "reasoning": ["<b>"], "seen": 3}
        file = {"format": "strata-conversations", "conversations": [{
            "id": "c", "title": {"a": 1}, "leaf": "b", "settings": {"tools": "[", "temperature": "hot", "system": 3},
            "messages": {"a": {"role": "user", "content": None}, "b": message}}]}
        self.assertEqual(self.page.run(f"store.imported({json.dumps(json.dumps(file))}).length"), 1)
        self.page.run("chat.open('c')")
        self.assertEqual(self.page.run("document.querySelectorAll('.turn').length"), 2)
        self.ask("Go on")
        self.assertNotIn("temperature", self.state.requests[-1])
        circle = {"format": "strata-conversations", "conversations": [{
            "id": "d", "leaf": "a", "messages": {"a": {"role": "user", "parent": "b"}, "b": {"role": "user", "parent": "a"}}}]}
        self.assertIsNone(self.page.run(f"store.imported({json.dumps(json.dumps(circle))})"))

    def test_two_tabs_see_each_other(self):
        other = self.browser.open(self.server.url)
        other.run("document.getElementById('question').focus()")
        other.type("From the other tab")
        other.press("Enter")
        self.page.wait("document.getElementById('conversations').innerText.includes('From the other tab')")
        self.click("#conversations .open")
        self.page.wait(ANSWER_LAST + "?.innerText.includes('That is turn 1.')")
        self.assertEqual(self.page.run("document.querySelectorAll('.turn').length"), 2)
        self.browser.call("Target.closeTarget", targetId=other.target)

    def test_nothing_jumps_while_an_answer_streams(self):
        self.ask("Hello")
        self.page.run("""window.shifts = []; new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map((entry) =>
            [entry.value, entry.hadRecentInput]))).observe({ type: 'layout-shift' })""")
        self.ask("Plan a split")
        shifts = self.page.run("window.shifts")
        self.assertLess(sum(value for value, after_input in shifts if not after_input), 0.01)

    def test_the_theme_can_be_chosen_and_is_kept(self):
        ground = "getComputedStyle(document.body).backgroundColor"
        self.page.colours("light")
        light = self.page.run(ground)
        self.click("#theme")
        self.click("#theme")
        self.assertEqual(self.page.run("document.documentElement.dataset.theme"), "dark")
        self.assertNotEqual(self.page.run(ground), light)
        self.page.go(self.server.url)
        self.assertEqual(self.page.run("document.documentElement.dataset.theme"), "dark")
        self.click("#theme")
        self.assertEqual(self.page.run(ground), light)

    # --- The cluster -------------------------------------------------------------------------------

    def test_the_cluster_moves_when_a_worker_goes_and_comes(self):
        self.page.press("2", alt=True, code="Digit2")
        names = "[...document.querySelectorAll('.card h4')].map((node) => node.innerText)"
        stages = "[...document.querySelectorAll('.layers li')].map((node) => node.innerText.replace(/\\s+/g, ' ').trim())"
        self.page.wait(names + ".length === 5")
        self.assertEqual(self.page.run(stages), ["0–8 attic → 410 µs", "9–15 cellar → 380 µs", "16–24 lab-server-with-a-long-name → 1.3 ms", "25–27 pi"])
        full = self.state.cluster
        less = copy.deepcopy(full)
        less.update(state="loading", epoch=4, detail="cellar is gone; its layers are loaded elsewhere")
        less["nodes"] = [node for node in less["nodes"] if node["name"] != "cellar"]
        less["nodes"][0]["stage"]["layer_end"] = 16
        less["nodes"][0].update(state="loading", load={"done_bytes": 1 << 30, "total_bytes": 4 << 30})
        self.state.cluster = less
        self.page.wait(names + ".length === 4")
        self.assertEqual(self.page.run(stages)[0], "0–15 attic → 410 µs")
        self.assertIn("11 ms", self.text(".card .facts"))
        self.assertIn("25 %: 1.0 of 4.0 GiB loaded", self.text(".card"))
        self.assertIn("cellar is gone", self.text(".events"))
        full["nodes"][0].update(steps_done=4221, step_us=3_500.0)
        self.state.cluster = full
        self.page.wait("document.querySelector('.card .facts').innerText.includes('3.5 ms, foretold 9.8 ms')")
        self.page.wait("document.querySelector('.events').innerText.includes('cellar joined')")
        self.assertIn("ready", self.text("#cluster header .state"))

    def test_a_lost_server_is_said_and_found_again(self):
        self.page.press("2", alt=True, code="Digit2")
        self.page.wait("document.querySelectorAll('.card').length === 5")
        self.state.key = "now asked for"
        self.page.wait("document.querySelector('.trouble:not([hidden])')?.innerText.includes('API key')")
        self.state.key = ""
        self.page.wait("document.querySelector('.trouble').hidden")

    # --- For every eye and hand --------------------------------------------------------------------

    def test_contrast_in_both_themes(self):
        self.ask("Plan a split")
        self.ask("Busy")
        self.page.run("document.querySelector('details.reasoning').open = true")
        for scheme in ("light", "dark"):
            self.page.colours(scheme)
            for view in ("chat", "cluster"):
                self.page.run(f"app.showView('{view}')")
                self.page.wait("document.querySelectorAll('.card').length === 5")
                time.sleep(0.7)  # colours change gradually
                self.assertEqual(self.page.run(CONTRAST), [], f"{scheme}, {view}: contrast below 4.5")

    def test_everything_that_is_pressed_has_a_name(self):
        self.ask("Plan a split")
        nameless = self.page.run("""[...document.querySelectorAll('button, a[href], input, textarea, select')].filter((node) =>
            !(node.getAttribute('aria-label') || node.innerText?.trim() || node.labels?.length || node.textContent.trim())).map((node) => node.outerHTML)""")
        self.assertEqual(nameless, [])

    def test_no_width_scrolls_sideways(self):
        self.ask("Plan a split")
        for width in (360, 599, 768, 900, 1280, 1700, 2560):
            self.page.size(width, 800)
            for view in ("chat", "cluster"):
                self.page.run(f"app.showView('{view}')")
                time.sleep(0.1)
                wide = self.page.run("""['scroll', 'cluster', 'page', 'bar'].filter((id) => { const node = document.getElementById(id);
                    return node.offsetParent && node.scrollWidth > node.clientWidth + 1; })""")
                self.assertEqual(wide, [], f"{view} at {width}")


# The texts whose colour is too near to that of what is behind them.
CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
  const light = (c) => { const [r, g, b] = [0, 1, 2].map((i) => { const v = c[i] / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
                         return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return rgba('white');
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (node.closest('button:disabled, .unseen, .skip, script, style')) continue;
    const style = getComputedStyle(node);
    const done = node.closest('.segment')?.querySelector('.done');
    const grounds = done ? [rgba(getComputedStyle(done).backgroundColor), behind(node)] : [behind(node)];
    for (const ground of grounds) {
      const [a, b] = [light(rgba(style.color)), light(ground)].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      if (ratio < 4.5) bad.push(`${node.className || node.localName}: ${walker.currentNode.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
    }
  }
  return [...new Set(bad)];
})()"""


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if not browsers.find_chromium():
        print("skipped: no Chromium (apt-get install chromium)")
        sys.exit(77)
    PAGE = sys.argv.pop(1)
    unittest.main(verbosity=2)
