#include "tests/fuzz/corpus.h"

namespace strata::fuzz {

std::vector<std::string> corpus() {
  return {
      "",
      "{% for m in messages %}{{ '<|' + m['role'] + '|>' + (m.content or '')|trim }}{% endfor %}",
      "{%- set ns = namespace(a=0) -%}\n{% for i in range(9) if i is odd %}{% set ns.a = ns.a + i "
      "%}{{ loop.index }}{{ loop.last }}{% else %}x{% endfor %}{{ ns.a }}",
      "{% macro m(a, b=2, c='x') %}{{ a }}{{ kwargs }}{{ varargs }}{{ caller() }}{% endmacro %}"
      "{% call m(1, 2, z=3) %}é🙂{% endcall %}",
      "{{ messages|map(attribute='role')|join(', ') }}{{ tools|tojson(indent=2) }}{{ x|sort|list "
      "}}",
      "{{ 'a,b'.split(',')[0].upper()[::-1] ~ '%s %05.2f' % ('x', 1.5) ~ '{:>5}'.format(3) }}",
      "{% raw %}{{ x }}{% endraw %}{# c -#} {% filter upper %}a{{ bos_token }}{% endfilter %}",
      "{% for i in [[1, [2]]] recursive %}{{ loop(i) if i is iterable else i }}{% endfor %}",
      "{{ x[1:] + x[:-1] }}{{ {'a': 1, 2: (3,)} }}{{ 1 if x else 2 }}{{ not x or 2 ** 70 // 3 }}",
      "{% set a, b = x[:2] %}{% with c = a %}{{ c }}{% endwith %}{{ missing.y|default('d') }}",
      "{% for c in 'aé' %}{% if loop.first %}{% continue %}{% endif %}{{ c }}{% break %}{% endfor "
      "%}",
      "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ x|batch(2)|list }}"
      "{{ x|groupby(0)|list if false }}{{ 'a b'|title|replace(' ', '_')|indent(2, true) }}",
      "{% generation %}{{ strftime_now('%Y') }}{% endgeneration %}{{ raise_exception('no') }}",
  };
}

}  // namespace strata::fuzz
