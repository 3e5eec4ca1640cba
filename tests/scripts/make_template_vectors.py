#!/usr/bin/env python3
"""Renders many template constructs with jinja2, set up as transformers does, and stores the results.

Usage: make_template_vectors.py > tests/data/templates/vectors.json
Needs the package jinja2 (3.1). Each case is a template, and the text or, with "error", the fact that Python fails too.
"""
import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2025, 1, 15, 12, 30, 0)


class Generation(jinja2.ext.Extension):
    """{% generation %}: its body, in a scope of its own."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render", [])
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


# JSON texts, so that numbers reach both sides with all their digits.
VARIABLES = {
    "messages": json.dumps([
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": "Héllo <b>&amp;</b> \"q\" 'q' \\ 東京 🙂\n\tx"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": [True, None, 2.5]}}}]},
        {"role": "tool", "content": "{\"x\": 1}", "name": "f"},
        {"role": "user", "content": [{"type": "text", "text": "part 1"}, {"type": "text", "text": "part 2"}]},
        {"role": "assistant", "content": None}]),
    "tools": json.dumps([{"type": "function", "function": {
        "name": "get_weather", "description": "Weather\nof a place", "parameters": {
            "type": "object", "required": ["city"], "properties": {
                "city": {"type": "string", "description": "Where"},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                "days": {"type": ["integer", "null"]},
                "nested": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "number"}}}}}}}}]),
    "big": "123456789012345678901234567890",
    "big2": "-18446744073709551616",
    "nums": "[3, 1, 2, 1.5, -7, 0]",
    "words": json.dumps(["pear", "Apple", "fig", "apple", "Fig", "éclair", "Zoo"]),
    "people": json.dumps([{"name": "Bo", "age": 30, "tags": ["x", "y"]}, {"name": "al", "age": 25, "tags": []},
                          {"name": "Cy", "age": 30}, {"name": "di", "age": None}]),
    "d": json.dumps({"b": 2, "a": 1, "items": "mine", "C": 3, "é": "ü"}),
    "tree": json.dumps([{"n": 1, "c": [{"n": 2, "c": []}, {"n": 3, "c": [{"n": 4, "c": []}]}]}, {"n": 5, "c": []}]),
    "text": json.dumps("The quick  brown\tfox\n\njumps over\r\nthe lazy dog. "),
    "uni": json.dumps("ßtraße ΣΊΣΥΦΟΣ ǆ İi ﬁn ①² ٣ a\u00a0b\u2028c\u200bd\x7f\x01"),
    "html": json.dumps("<a href=\"x\">'&'</a>"),
    "empty": "[]", "none": "null", "t": "true", "f": "false", "zero": "0", "pi": "3.14159", "neg": "-2.5",
    "name": json.dumps("World"),
}

OUT = []


def expressions():
    """Templates that print one expression."""
    numbers = ["1", "0", "-7", "2.5", "1e16", "1e15", "123456789.123456789", "1e-5", "0.0001", "1e300", "-0.0", "5.0",
               "100000000000000000000.0", "1_000", "0x1F", "0b101", "0o17", "1e5", "big", "big2", "t", "none"]
    for a in numbers:
        OUT.extend(["{{ %s }}" % a, "{{ [%s] }}|{{ %s|string|length }}" % (a, a), "{{ %s|tojson }}" % a])
        for op in ["+", "-", "*", "/", "//", "%"]:
            for b in ["3", "-2", "0.5", "big"]:
                OUT.append("{{ %s %s %s }}" % (a, op, b))
    for e in """2 ** 10|2 ** 100|2 ** -1|(-2) ** 3|2 ** 0.5|-2 ** 2|2 ** 3 ** 2|10 ** 20 // 7|-10 ** 20 % 7|7 // -2|-7 % 3|7.5 // 2|-7.5 % 2
1 == 1.0|1 == true|'1' == 1|none == false|[1, 2] == [1, 2]|(1, 2) == [1, 2]|{'a': 1} == {'a': 1.0}|'a' < 'b'|[1, 2] < [1, 3]|1 < 2 < 3|1 < 3 < 2|3 > 2 == true
1 in [1, 2]|'a' in 'abc'|'' in 'abc'|'x' not in 'abc'|'a' in {'a': 1}|2 in (1, 2)|none in [none]|missing in [1]|1 in missing
not true|not none|not missing|not 'x'|true and 0|1 and 'x'|0 or ''|none or 'x'|1 if true|1 if false|1 if false else 2|1 if 0 else 2 if 0 else 3
'a' ~ 1 ~ none ~ true ~ 2.0 ~ missing ~ [1]|'a' + 'b'|'ab' * 3|3 * 'ab'|[1] * 3|[1] + [2]|(1,) + (2,)|'a' 'b'|'a' 'b' ~ 'c'
1, 2|(1,)|()|(1, 2)[0]|[1, 2, 3][-1]|[1, 2, 3][5]|[1, 2, 3][1:]|[1, 2, 3][:-1]|[1, 2, 3][::-1]|[1, 2, 3][::2]|'abcdef'[1:4]|'abcdef'[-3:]|'abcdef'[::-2]|'héé'[1]|'東京都'[1:]|(1, 2, 3)[1:]|'abc'[10:]|'abc'[2:1]
{'a': 1, 'b': [1, 'x']}|{1: 2, 'x': none, (1, 2): 3}|{'a': 1}['a']|{'a': 1}.a|{'a': 1}.b|{'a': {'b': 1}}.a.b|{'items': 1}.items|{'items': 1}['items']|d.items|d['items']|d.b|d.missing|d['missing']
'it\\'s'|"say \\"hi\\""|['it\\'s', "q\\"q", 'both\\'"']|['a\\nb\\t\\\\']|['\\x00\\x7f\\u00a0é🙂\\u200b']|'\\u00e9\\x41\\101\\U0001F642'|'\\d\\q'|'a\\
b'
-1|+1|--1|-1|abs|-5|abs|(-5)|abs|1 - -1|- 2 * 3|not 1 == 2|1 + 2 * 3 - 4 / 2|2 * 3 ** 2|(1 + 2) * 3|10 - 2 - 3|100 / 10 / 2|7 % 4 * 2|1 ~ 2 + 3|1 + 2 ~ 3|'a' ~ 'b' == 'ab'
range(5)|range(2, 5)|range(0, 10, 3)|range(5)|list|range(5, 0, -2)|list|range(3)[1]|range(10)[2:5]|list|range(3)|length|2 in range(3)
dict(a=1, b=2)|dict({'a': 1}, b=2)|dict([('a', 1)])|namespace(a=1).a|namespace(a=1).b|namespace({'x': 3}).x
true|True|false|False|none|None|TRUE|missing|missing.x|missing[0]|missing()|missing + 1|1 + missing|missing ~ 'x'|missing == missing|missing == none|missing != 1|missing < 1|[missing]|missing|length|missing|list|-missing
1 + 'a'|'a' + 1|'a' + none|[] + 1|none + none|1 / 0|1 // 0|1 % 0|1.0 / 0|'a' < 1|none < 1|[1] < 'a'|'a' - 'b'|-'a'|none.x|none['x']|1.x|1[0]|'abc'.nope|'abc'()|none()|[1]()|{}()|{[]: 1}|{}[[]]|'x' in 1|1 in 'x'
(2.5).is_integer()|(2.0).is_integer()|(5).bit_length()|1.5.is_integer()|'{0} {1}'.format(1, 2)|'{} {}'.format('a', none)|'{a} {b!r}'.format(a=1, b='x')|'{:>5}|{:<5}|{:^5}|{:*^7}'.format(1, 2, 'x', 'y')|'{:05d} {:+d} {:,} {:_}'.format(42, 42, 1234567, 1234567)|'{:.2f} {:e} {:g} {:%}'.format(3.14159, 31415.9, 0.0001, 0.25)|'{:x} {:X} {:#x} {:o} {:b} {:#b}'.format(255, 255, 255, 8, 5, 5)|'{0[a]} {0.a}'.format({'a': 1})|'{{}} {}'.format(1)|'{:{}}'.format('x', 4)|'{:.3}'.format('abcdef')|'{:.3}'.format(2.0)|'{}'.format(1.0)|'{:d}'.format('x')|'{'.format()|'{} {}'.format(1)|'{:5}|{:5}'.format(true, none|string)
'%s %s' % (1, 'a')|'%d%%' % 5|'%5d|%-5d|%05d|%+d' % (1, 2, 3, 4)|'%.2f %5.1f %e %g' % (3.14159, 2.55, 12345.678, 0.00001)|'%x %X %o %#x' % (255, 255, 8, 255)|'%(a)s %(b)d' % {'a': 1, 'b': 2}|'%r %s' % ('a', [1])|'%s' % none|'%s' % 'x'|'%c%c' % ('a', 66)|'%5s|%-5s|%.2s' % ('a', 'b', 'abc')|'%d' % 3.9|'%d' % 'x'|'%s' % (1, 2)|'%s %s' % 1|'%i' % big""".split("\n"):
        # A bar that belongs to a filter would be cut here; filters have a list of their own.
        OUT.extend("{{ %s }}" % part for part in split_alternatives(e))


def split_alternatives(line):
    """Cuts at bars that are followed by no filter's name."""
    names = {"abs", "list", "length", "string"}
    parts = []
    for part in line.split("|"):
        word = part.split(" ")[0]
        inside_string = parts and (parts[-1].count("'") - parts[-1].count("\\'")) % 2 == 1
        if parts and (word in names or inside_string):
            parts[-1] += "|" + part
        else:
            parts.append(part)
    return parts


def methods():
    subjects = {"text": "text", "uni": "uni", "'hello world'": "", "'  x  '": "", "''": "", "'aXbXc'": "", "'123'": "", "'Ab Cd'": ""}
    calls = """upper() lower() capitalize() title() swapcase() casefold() strip() lstrip() rstrip() split() rsplit() splitlines() splitlines(true)
split('X') split('o',1) rsplit('o',1) split(none,1) rsplit(none,2) split(' ',2) partition('X') rpartition('o') partition('zz') replace('o','0') replace('','-') replace('l','L',1)
startswith('h') startswith(('x','h')) endswith('d') endswith('o',0,5) find('o') rfind('o') find('zz') index('l') count('l') count('') isdigit() isalpha() isalnum() isspace() isupper() islower() istitle()
isnumeric() isdecimal() isascii() isidentifier() isprintable() center(15) center(14,'*') ljust(13,'.') rjust(13,'.') zfill(15) join(['a','b']) removeprefix('he') removesuffix('ld') expandtabs() expandtabs(4) strip('hd') strip('x ') find('o',5) find('é') index('zz') nope()""".split()
    for subject in subjects:
        OUT.extend("{{ %s.%s }}" % (subject, call.replace(",", ", ")) for call in calls)
    OUT.extend("{{ %s }}" % e for e in [
        "[1, 2, 1].count(1)", "[1, 2, 3].index(2)", "[1].index(9)", "(1, 2).count(2)", "[1].copy()", "[3].append(1)", "{}.update(a=1)",
        "[1].pop()", "[1].sort()", "d.keys()", "d.values()|list", "d.items()|list", "d.get('a')", "d.get('zz')", "d.get('zz', 5)",
        "d.copy()", "d.keys()|length", "'a' in d.keys()", "d.pop('a')", "d.items()|first", "d.keys()|list|sort",
        "'{a}'.format_map({'a': 1})", "', '.join(d)", "', '.join([1])", "'-'.join('abc')", "'x'.join([])", "d.__class__", "''.__class__",
        "'abc'.split('')", "'a,b,,c'.split(',')", "'a\\u00a0b c'.split()", "'ab'.zfill(5)", "'-5'.zfill(4)", "'+5'.zfill(4)"])


def filters():
    OUT.extend("{{ %s }}" % e for e in """nums|sort;nums|sort(reverse=true);words|sort;words|sort(case_sensitive=true);words|sort(true);people|sort(attribute='name')|map(attribute='name')|list
people|sort(attribute='age,name')|list;people|map(attribute='name')|join(', ');people|map(attribute='tags.0')|list;people|map(attribute='zip', default='?')|list;words|map('upper')|list;words|map('replace', 'p', 'P')|join
people|selectattr('tags')|map(attribute='name')|list;people|selectattr('age', 'equalto', 30)|list|length;people|rejectattr('age', 'none')|map(attribute='age')|list;people|selectattr('age')|list|length;people|selectattr('zip', 'defined')|list
nums|select('gt', 1)|list;nums|reject('odd')|list;nums|select|list;nums|select('divisibleby', 3)|list;words|select('in', ['fig', 'x'])|list;nums|reject('equalto', 1)|list;words|select('string')|list
nums|first;nums|last;empty|first;empty|last;'abc'|first;'abc'|last;d|first;nums|map('abs')|last;nums|length;words|count;d|length;'日本'|length;nums|map('abs')|length;5|length;none|length
nums|min;nums|max;words|min;words|max(case_sensitive=true);empty|min;people|max(attribute='name');nums|sum;people|selectattr('age')|sum(attribute='age');[1.5, 2]|sum;[[1], [2]]|sum(start=[]);['a']|sum
nums|unique|list;words|unique|list;words|unique(case_sensitive=true)|list;people|unique(attribute='age')|map(attribute='name')|list;nums|reverse|list;'abc'|reverse;nums|reverse;(1, 2)|reverse|list;d|reverse|list
nums|batch(2)|list;nums|batch(4, 'x')|list;nums|slice(4)|list;nums|slice(4, 'x')|list;d|dictsort;d|dictsort(true);d|dictsort(by='value');{'a': 2, 'b': 1}|dictsort(by='value', reverse=true);d|items|list;missing|items|list;5|items|list
people|groupby('age')|map(attribute='grouper')|list;words|map('lower')|groupby(0)|list;people|groupby('name')|first;people|groupby('zip', default='none')|map(attribute='list')|map('length')|list
nums|join;nums|join(', ');nums|join(1);people|join('-', attribute='name');'abc'|join('.');none|join;missing|join(',')
'a'|default('x');missing|default('x');missing|default;''|default('x');''|default('x', true);none|default('x');none|d('x', boolean=true);missing.x|default('x')
'hello world'|capitalize;'hELLO wORLD-foo (bar'|title;"they're bill's"|title;'ab'|upper;'AB'|lower;5|upper;none|lower;'  x '|trim;'xxaxx'|trim('x');5|trim;text|trim;uni|trim|title
'a b c'|replace(' ', '_');'aaa'|replace('a', 'b', 2);5|replace(5, 6);'abc'|replace('', '-');'x'|center(5);'x'|center(6);'ab'|center(5);html|e;html|escape;html|safe;html|safe|e;html|e|e;html|forceescape;(html|safe) + '<';('<' ~ (html|safe));html|safe ~ '<'
'%s-%s'|format('a', 1);'%(x)s'|format(x=1);'%d'|format(3.7);5|string + 'x';[1]|string;none|string;'x'|string;3.7|int;'3.7'|int;'x'|int;'x'|int(5);'0x1F'|int(base=16);'0b11'|int(0, 2);' 42 '|int;'1_000'|int;none|int(7);true|int;big|int;'99999999999999999999'|int
'3.5'|float;'x'|float;'x'|float(1.5);5|float;'1e3'|float;'inf'|float;'nan'|float;' 2 '|float;none|float;true|float;big|float
2.5|round;3.5|round;2.675|round(2);-2.5|round;2.7|round|int;42.55|round(1, 'floor');42.55|round(1, 'ceil');42|round;1234|round(-2);1250|round(-2);1350|round(-2);1e300|round(2);5|round(1);2.5|round(method='x');-5|abs;-2.5|abs;big2|abs;'x'|abs
'a\\nb\\n\\nc'|indent;'a\\nb'|indent(2);'a\\nb'|indent(2, true);'a\\n\\nb'|indent(2, blank=true);'a\\nb'|indent('> ');'a\\nb'|indent(width=3, first=true);''|indent;'a\\n'|indent;'a\\n\\n'|indent(2, true, true);text|indent(1)
'foo bar baz qux'|truncate(9);'foo bar baz qux'|truncate(9, true);'foo bar baz qux'|truncate(11);'foo bar baz qux'|truncate(11, false, '...', 0);'foobar'|truncate(3);'日本語のテキスト'|truncate(6, true, '…', 0)
text|wordcount;'a b-c d_e'|wordcount;'a b/c?d=é&'|urlencode;{'a': 'x y', 'b': 1}|urlencode;[('a', 1)]|urlencode;5|urlencode;1|filesizeformat;999|filesizeformat;1000|filesizeformat;123456789|filesizeformat;123456789|filesizeformat(true);1e30|filesizeformat
tools|tojson;tools|tojson(indent=2);tools|tojson(indent=4)|length;d|tojson;d|tojson(sort_keys=true);d|tojson(separators=(',', ':'));d|tojson(ensure_ascii=true);uni|tojson;html|tojson;text|tojson;[]|tojson(indent=2);{}|tojson(indent=2);[[], {}]|tojson(indent=1);nums|tojson(indent=0);'🙂é'|tojson(ensure_ascii=true)
{1: 2, none: 3, true: 4, 2.5: 5}|tojson;(1, 2)|tojson;missing|tojson;[missing]|tojson;range(3)|tojson;nums|map('abs')|tojson;{(1, 2): 1}|tojson;1e16|tojson;0.1|tojson;d|tojson(indent='\\t');{'a': [1, {'b': 2}]}|tojson(indent=2);'x'|safe|tojson;'a/b'|tojson
'a'|attr('upper');d|attr('a');d|attr('items');missing|attr('x');'a'|nofilter;'a' is notest;words|list;'abc'|list;d|list;5|list;nums|list|list;messages|map(attribute='role')|join(' ');messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list|first;messages|map(attribute='content')|list|tojson""".replace("\n", ";").split(";"))
    OUT.append("{{ nums|select('odd') is iterable }}{{ 'x' if empty|select else 'y' }}")
    OUT.append("{% set g = nums|select('gt', 0) %}{{ g|list }}{{ g|list }}")
    OUT.append("{{ (nums|map('string'))|join(',') ~ (words|map('first')|join) }}")


def tests():
    values = ["1", "1.5", "'x'", "''", "none", "true", "[]", "[1]", "{}", "(1,)", "missing", "range(3)", "big", "nums|map('abs')", "d.keys()", "'X'|safe", "namespace()", "range"]
    names = ["defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "sequence", "iterable", "callable", "escaped", "lower", "upper"]
    for value in values:
        OUT.append("".join("{%% if %s is %s %%}%s {%% endif %%}" % ("(" + value + ")", name, name) for name in names))
    OUT.extend("{{ %s }}" % e for e in """5 is odd;4 is even;6 is divisibleby 3;6 is divisibleby(4);5 is not odd;1 is eq 1;1 is equalto 1.0;1 is ne 2;1 is lt 2;2 is ge 2;'a' is in 'abc';1 is in [1];1 is sameas 1;none is sameas none;[] is sameas [];'upper' is filter;'nope' is filter;'odd' is test
1 is == 1;'x' is odd;1.5 is odd;missing is odd;1 is not none and 2 is defined;not 1 is none;x is defined or true;name is string and name|length > 3;1 is number is string;messages[0].role is equalto 'system';messages[0]['nope'] is defined;5 is gt(4)""".replace("\n", ";").split(";"))


def statements():
    OUT.extend([
        # White space control.
        "a\n  {% if t %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if t -%}\n  b\n  {%- endif -%}\nc", "a {%+ if t +%}\n b {%+ endif %}\n", "  {{ 1 }}\n  {{- 2 -}}\n  {{ 3 }}\n\n",
        "{# c #}\nx\n  {# c #}\ny", "{#- c -#}\n x", "x {#- c -#} y", "x\n{#+ c +#}\ny", "a\n\t {% set x = 1 %} \nb{{ x }}", "a{% if t %}\n\nb{% endif %}\n\n", "\r\na\r\n{% if t %}\r\nb{% endif %}\rc\r\n",
        "{% raw %}{{ x }} {% if %}{% endraw %}\ny", "{% raw -%}\n x {%- endraw -%}\n y", "a\n  {% raw %}\n  b\n  {% endraw %}\nc", "{%- raw -%} {# x #} {%- endraw %}", "{% raw %}a{% endraw +%}\nb", "x\n\n", "x\n", "\n", "", "{{ '' }}\n\n",
        "{{-1}} a {{+1}}", "{{ {'a': {'b': 1}} }}", "{{ {'a': 1}['a'] }}", "{%if t%}x{%endif%}", "{% if t: %}x{% endif %}", "a{{ '{{' }}{{ '%}' }}b", "{{ \"}}\" }}", "{ {x} {%}", "{{'a'}}{{'b'}}\n{{'c'}}", "\u00a0{%- if t %}x{% endif -%}\u00a0y", " \x0b{%- set q = 1 -%}\x1c y",
        "line1\n   {%- set q = 1 %}\nline2", "{% if t %}\n    indented\n{% endif %}", "  x {% if t %}y{% endif %}", "{% set a %}\n x\n{% endset %}[{{ a }}]",
        # If, for, loop.
        "{% if zero %}a{% elif none %}b{% elif t %}c{% else %}d{% endif %}", "{% if empty %}a{% else %}b{% endif %}", "{% for n in nums %}{{ n }},{% endfor %}", "{% for n in empty %}x{% else %}none{% endfor %}", "{% for n in missing %}x{% else %}none{% endfor %}", "{% for c in 'aé東' %}[{{ c }}]{% endfor %}",
        "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
        "{% for n in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
        "{% for n in nums %}{{ loop.previtem }}<{{ n }}>{{ loop.nextitem }} {% endfor %}", "{% for n in nums %}{{ loop.cycle('a', 'b') }}{{ loop.changed(n > 1) }}{% endfor %}", "{% for n in nums if n > 0 %}{{ loop.index }}:{{ n }}/{{ loop.length }}{% if not loop.last %}, {% endif %}{% endfor %}",
        "{% for n in nums|select('gt', 0) %}{{ loop.length }}{{ loop.last }}{{ n }} {% endfor %}", "{% for n in nums|map('abs') %}{{ loop.revindex }}{% if loop.index == 2 %}{{ loop.length }}{% endif %}{% endfor %}", "{% for n in nums if missing %}x{% else %}e{% endfor %}",
        "{% for n in nums %}{% if n == 2 %}{% continue %}{% endif %}{% if n == -7 %}{% break %}{% endif %}{{ n }}{% endfor %}", "{% for n in nums %}{% break %}{% else %}E{% endfor %}", "{% for n in nums %}{% continue %}{% else %}E{% endfor %}", "{% for n in nums %}{% for m in [1, 2] %}{% if m == 2 %}{% break %}{% endif %}{{ n }}{{ m }} {% endfor %}{% endfor %}", "{% break %}",
        "{% for item in tree recursive %}{{ item.n }}@{{ loop.depth }}{% if item.c %}({{ loop(item.c) }}){% endif %}{% endfor %}", "{% for item in tree recursive %}{{ loop.index }}.{{ item.n }}{{ loop(item.c) }}{% else %}-{% endfor %}", "{% for x in [1] %}{{ loop([2]) }}{% endfor %}",
        "{% for a in [1, 2] %}{% for b in [3, 4] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for m in messages %}{{ m.role }}:{% if loop.nextitem is defined %}{{ loop.nextitem.role }}{% endif %} {% endfor %}", "{% for x in nums[:2] + nums[-1:] %}{{ x }}{% endfor %}", "{% for i in range(3) %}{{ i }}{% endfor %}", "{% for x in (1, 2), (3, 4) %}{{ x }}{% endfor %}",
        # Scopes.
        "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "{% if t %}{% set y = 5 %}{% endif %}{{ y }}", "{% for i in [1] %}{% set z = 5 %}{% endfor %}{{ z }}", "{% set ns = namespace(n=0) %}{% for i in nums %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b = ns.a + 1 %}{{ ns.b }}{{ ns }}{{ ns.zz }}",
        "{% set d.x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = [3, 4] %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set x %}a{{ name }}b{% endset %}{{ x }}", "{% set x | upper %}a{{ name }}b{% endset %}{{ x }}", "{% set x | replace('a', 'b') | upper %}aa{% endset %}{{ x }}", "{% set x %}{% set q = 1 %}{{ q }}{% endset %}{{ x }}{{ q }}",
        "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}", "{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x }}", "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}", "{% filter upper %}a{{ name }}{% endfilter %}", "{% filter replace('o', '0')|upper %}foo{% endfilter %}", "{% filter trim %}  {% set x = 1 %}{{ x }} {% endfilter %}{{ x }}",
        "{% generation %}g{{ name }}{% set v = 1 %}{% endgeneration %}{{ v }}", "{%- generation -%} g {%- endgeneration -%}  x", "{% for m in [1, 2] %}{% generation %}{{ m }}{{ loop.index }}\n{% endgeneration %}\n{% endfor %}", "{% block b %}x{{ name }}{% endblock %}", "{% set q = 1 %}{% block b %}{{ q }}{% set q = 2 %}{% endblock %}{{ q }}", "{% for i in [1] %}{% block b scoped %}{{ i }}{% endblock b %}{% endfor %}", "{% for i in [1] %}{% block c %}[{{ i }}]{% endblock %}{% endfor %}",
        "{% set messages = messages[1:] %}{{ messages|length }}{{ messages[0].role }}", "{% print 1, 2 %}", "{% autoescape false %}{{ html }}{% endautoescape %}",
        # Macros.
        "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c='y') }}|{{ m() }}|{{ m(a=5) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(z=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
        "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body{{ name }}{% endcall %}", "{% macro m() %}{% for i in [1, 2] %}{{ caller(i, 'k') }}{% endfor %}{% endmacro %}{% call(a, b) m() %}<{{ a }}{{ b }}>{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
        "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m() %}{% set x = 5 %}{% endmacro %}{{ m() }}{{ x }}", "{% macro m(x) %}  {{ x }}\n{% endmacro %}{{ m(1)|trim }}{{ m(2)|length }}", "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{{ m }}{% macro m(a, b=1) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.caller }}{{ m }}",
        "{% for i in [1, 2] %}{% macro m() %}{{ i }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(*args) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}", "{{ dict(*[[['a', 1]]], **{'b': 2}) }}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1], **{'b': 2}) }}", "{% macro m() %}{{ kwargs.get('x') }}{{ varargs[0] }}{{ varargs|length }}{% endmacro %}{{ m(9, x=1) }}",
        "{% macro outer() %}{% macro inner() %}i{{ caller() }}{% endmacro %}{% call inner() %}c{% endcall %}{% endmacro %}{{ outer() }}", "{% set f = namespace() %}{% macro m(x) %}<{{ x }}>{% endmacro %}{% set f.m = m %}{{ f.m(1) }}",
        # Functions.
        "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner(', ') %}{% for i in [1, 2, 3] %}{{ j() }}{{ i }}{% endfor %}", "{{ raise_exception('bad ' ~ name) }}", "{{ strftime_now('%Y-%m-%d %H:%M:%S %B %b %A %a %d %j %p %I %y %%') }}", "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('') }}|{{ strftime_now('%f%z%Z') }}|{{ strftime_now('%-d') }}", "{{ range(1000000) }}", "{{ range(1, 2, 0) }}",
        # Errors of syntax.
        "{% if %}{% endif %}", "{% for %}{% endfor %}", "{{ }}", "{{ 1 1 }}", "{% endif %}", "{% if t %}", "{% unknown %}", "{{ 'a }}", "{{ a b }}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ 1) }}", "{{ a.1.b }}", "{{ a. }}", "{{ a is }}", "{{ a| }}", "{{ $ }}", "{# x", "{% raw %}x", "{{ 007 }}", "{{ 1.e5 }}", "{{ x", "{% x", "{{ 1 if }}", "{% for x in y recursive if z %}{% endfor %}", "{% set x.y.z = 1 %}", "{% call m %}{% endcall %}", "{% do 1 %}", "{{ f(a=1, 2) }}", "{{ f(**a, *b) }}", "{% filter %}x{% endfilter %}", "{{ 1 is defined is none }}",
        "{{ '\\u12' }}", "{{ 'é\\é' }}", "{{ 1_0.5_0 }}", "{{ 1__0 }}", "{{ é }}", "{{ nums[0:2:1] }}{{ nums[:] }}{{ nums[::] }}{{ nums[1, 2] }}", "{{ nums.0 }}{{ nums.1 }}", "{{ 'a'.upper().lower()[0] }}", "{{ ('a', 'b')|join|upper }}", "{{ {'a': 1}|length }}{{ [1, [2, [3]]] }}",
    ])


def chats():
    """The ways in which real templates are written."""
    OUT.extend([
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + (message['content'] or '')|string + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt is defined %}x{% endif %}",
        "{%- for message in messages %}\n    {%- if message['content'] is string %}\n        {{- message['content']|trim }}\n    {%- elif message['content'] is iterable %}\n        {%- for item in message['content'] if item['type'] == 'text' %}\n            {{- item['text'] }}\n        {%- endfor %}\n    {%- else %}\n        {{- raise_exception('Invalid content type') if false }}\n    {%- endif %}\n{%- endfor %}\n",
        "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n    {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}\n        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last_query_index = index %}\n    {%- endif %}\n{%- endfor %}{{ ns.last_query_index }}",
        "{% for m in messages %}{% if m.content is string and '</think>' in m.content %}{% set reasoning = m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{% set content = m.content.split('</think>')[-1].lstrip('\\n') %}[{{ reasoning }}][{{ content }}]{% endif %}{% endfor %}",
        "{%- for tool in tools %}{%- set tool = tool.function %}{{- '// ' + tool.description + '\\n' }}{%- for param_name, param_spec in tool.parameters.properties.items() %}{{- param_name }}{%- if param_name not in tool.parameters.required %}?{%- endif %}: {%- if param_spec.type is iterable and param_spec.type is not string and param_spec.type is not mapping %}{{ param_spec.type|join(' | ') }}{%- else %}{{ param_spec.type }}{%- endif %}{%- if param_spec.enum %} {{ '\"' + param_spec.enum|join('\" | \"') + '\"' }}{%- endif %}{%- if param_spec.default is defined %} // default: {{ param_spec.default|tojson }}{%- endif %}{%- if not loop.last %},\n{% endif %}{%- endfor %}{%- endfor %}",
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ (message['content']|string) | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = '<s>' + content %}{% endif %}{{ content }}{% endfor %}",
        "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] | trim + '\n\n' %}{% set messages = messages[1:] %}{% else %}{% set system_message = '' %}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% endfor %}",
        "{%- macro json_to_python_type(json_spec) %}\n{%- set basic_type_map = {\n    \"string\": \"str\",\n    \"number\": \"float\",\n    \"integer\": \"int\"\n} %}\n{%- if json_spec.type is string and basic_type_map[json_spec.type] is defined %}\n    {{- basic_type_map[json_spec.type] }}\n{%- elif json_spec.type == \"array\" %}\n    {{- \"list[\" +  json_to_python_type(json_spec['items']) + \"]\" }}\n{%- elif json_spec.type is iterable and json_spec.type is not string %}\n    {{- \"Union[\" }}\n    {%- for t in json_spec.type %}\n      {{- json_to_python_type({\"type\": t}) }}\n      {%- if not loop.last %}\n        {{- \",\" }}\n    {%- endif %}\n    {%- endfor %}\n    {{- \"]\" }}\n{%- else %}\n    {{- \"Any\" }}\n{%- endif %}\n{%- endmacro %}\n{%- for n, p in tools[0].function.parameters.properties.items() %}{{ n }}: {{ json_to_python_type(p) }}; {% endfor %}",
        "{%- macro render_item_list(item_list, tag_name='required') -%}\n    {%- if item_list is defined and item_list is iterable and item_list | length > 0 -%}\n        {%- if tag_name -%}{{- '\\n<' ~ tag_name ~ '>' -}}{%- endif -%}\n        {{- '[' }}\n            {%- for item in item_list -%}\n                {%- if loop.index > 1 -%}{{- \", \"}}{%- endif -%}\n                {%- if item is string -%}{{ \"`\" ~ item ~ \"`\" }}{%- else -%}{{ item }}{%- endif -%}\n            {%- endfor -%}\n        {{- ']' }}\n        {%- if tag_name -%}{{- '</' ~ tag_name ~ '>' -}}{%- endif -%}\n    {%- endif -%}\n{%- endmacro -%}{{ render_item_list(words) }}{{ render_item_list([], 'x') }}{{ render_item_list(nums, none) }}",
        "{%- for json_key in tools[0].function.parameters.keys() | reject('in', ['type', 'properties']) %}{{ json_key | replace('-', '_') | replace(' ', '_') }}{% endfor %}{%- set args_value = d | tojson | safe if d is mapping or (d is sequence and d is not string) else d | string %}{{- args_value }}",
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ ' [INST] ' + message['content']|string + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content']|string + eos_token|default('</s>') }}{% endif %}{% endfor %}",
        "{%- set user_messages = messages | selectattr('role', 'equalto', 'user') | list %}{{ user_messages | length }}{%- for message in messages | rejectattr('role', 'equalto', 'system') %}{%- if loop.last and (message is sameas(messages[-1])) %}LAST{%- endif %}{%- endfor %}",
        "{%- if tools is not none and (messages|last == messages[-1]) %}[AVAILABLE_TOOLS] [{% for tool in tools %}{%- set tool = tool.function %}{{- '{\"type\": \"function\", \"function\": {' }}{%- for key, val in tool.items() if key != 'return' %}{%- if val is string %}{{- '\"' + key + '\": \"' + val + '\"' }}{%- else %}{{- '\"' + key + '\": ' + val|tojson }}{%- endif %}{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}{{- '}}' }}{%- if not loop.last %}{{- ', ' }}{%- else %}{{- ']' }}{%- endif %}{% endfor %}[/AVAILABLE_TOOLS]{% endif %}",
        "{% set role_indicators = {'user': '<|user|>', 'assistant': '<|assistant|>'} %}{% for m in messages %}{{ role_indicators.get(m.role, '<|' ~ m.role ~ '|>') }}{% endfor %}{{ role_indicators['user'] }}{{ '%.3f'|format(pi) }}{{ '{:,}'.format(12345) }}",
        "{%- set date = strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024' %}{{ date }}{% set thinking = thinking if thinking is defined else false %}{{ thinking }}{{ 'on' if enable_thinking is not defined or enable_thinking else 'off' }}",
        "{%- for m in messages %}{{ loop.index0 }}{% if m.tool_calls is defined and m.tool_calls %}{% for tc in m.tool_calls %}<tool_call>\n{\"name\": \"{{ tc.function.name }}\", \"arguments\": {{ tc.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% for k, v in m.tool_calls[0].function.arguments | items %}<parameter={{ k }}>{{ v if v is string else v | tojson }}</parameter>{% endfor %}{% endif %}{% endfor %}",
        "{% set ns = namespace(found=false) %}{% for message in messages %}{% if not ns.found and message.role == 'user' %}{% set ns.found = true %}{{ loop.index0 }}{% endif %}{% endfor %}{{ (messages | map(attribute='role') | list).index('tool') }}{{ messages[-1].content is none }}{{ messages[0].content.strip().split(' ')[0] }}",
    ])


def main():
    for part in (expressions, methods, filters, tests, statements, chats):
        part()
    env = environment()
    values = {name: json.loads(text) for name, text in VARIABLES.items()}
    cases = []
    for source in dict.fromkeys(OUT):
        case = {"template": source}
        try:
            case["rendered"] = env.from_string(source).render(**values)
            if " at 0x" in case["rendered"]:
                continue
        except Raised as error:
            case["error"] = str(error)
        except Exception:
            case["error"] = None  # Python's words differ from ours
        cases.append(case)
    lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
    sys.stdout.write('{"now": "%s",\n"variables": %s,\n"cases": [\n%s\n]}\n' % (
        NOW.isoformat(), json.dumps(VARIABLES, indent=1), lines))
    print(f"{len(cases)} cases, {sum('error' in c for c in cases)} errors", file=sys.stderr)


if __name__ == "__main__":
    main()
