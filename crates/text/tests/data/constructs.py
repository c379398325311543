"""Writes constructs.json: what Jinja2 makes of constructs of templates.

    python constructs.py > constructs.json      (transformers 5.24, Jinja2 3.1.6)

The environment is the one in which transformers runs chat templates. Where `rendered` is null, the
construct is an error there.
"""

import json
from transformers.utils.chat_template_utils import _compile_jinja_template

INPUT = {
    "n": 5, "x": 1.5, "neg": -7, "s": "Hello World", "l": [3, 1, 2], "d": {"b": 2, "a": 1}, "e": "",
    "u": "ünï ß ǆ", "nested": {"items": [1, 2], "keys": "K", "get": 3, "title": "T"},
    "m": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}],
    "long": {"description": "words " * 20, "list": list(range(40)), "k": {"nested": ["x" * 30] * 3}},
}

EXPRESSIONS = r"""
'\/' ~ '\d' ~ '\ '
'\U0001F600' ~ '\u00e9\x41\101\7'|length
'\N{DIGIT ONE}\N{LATIN SMALL LETTER E WITH ACUTE}'
'\a\b\f\v\0'|list
'\x4'
'\u12'
'\N{NO SUCH NAME}'
'\é\中'
'\\n'
"\"'"
'it\'s'
'\8\9'
'\777\400'
d['items']()|list
d['get']('a')
s['upper']()
nested['get']
nested['get']()
d['b']()
m[0]['items']()|list
+n
+x
+true
-+n
+-n
n + +n
n*+n
[+n, +1]
{'a': +n}
+s
not +n
+n|string
+n if +n else +0
1,2
1,
n, s
d|attr('a')
d|attr('b')|default('q')
m|first|attr('role')
s|attr('foo') is defined
s.upper is defined
s.foo is defined
d.items is defined
n.real is defined
n.bit_length is defined
nested.title
nested.items
nested['items']
m[0].role.upper is callable
'ß'|capitalize
'ß'|title
'ß'|upper
'ß'.title()
'ǆ'.title()
'ǆ'.capitalize()
'ﬁx'.capitalize()
'ŉ'.title()
'ᾳ'.title()
'ა'.title()
u.title()
u|title
u.swapcase()
'ΑΣ'.lower()
'ΑΣ Β'|capitalize
'ΑΣΑΣ'.title()
'ǅ'.swapcase()
'İ'.lower()|length
'ß'.casefold()
'ΣςſİĲ'.casefold()
'Ꭰꭰ'.casefold()
'ﬃ'.casefold()
'ⓐb'.title()
"it's a dog's"|title
"it's a dog's".title()
'hello-world (foo) [bar] {baz} <q'|title
'²'.isdecimal()
'²'.isdigit()
'½'.isnumeric()
'½'.isdigit()
'一'.isnumeric()
'Ⅷ'.isnumeric()
'Ⅷ'.isalpha()
'٣'.isdecimal()
'٣'.isalnum()
'²'.isalnum()
'é'.isalpha()
'a\u0301'.isalpha()
'中'.isalpha()
'ǅ'.istitle()
'Aǅ'.istitle()
'ǅ'.isupper()
'Hello World'.istitle()
'Hello 1World'.istitle()
'HELLO1'.isupper()
'1'.isupper()
'hello1 '.islower()
'a b'.isprintable()
'a\n'.isprintable()
'\u200b'.isprintable()
''.isprintable()
'a1'.isidentifier()
'1a'.isidentifier()
'é_'.isidentifier()
''.isidentifier()
'\u00a0'.isspace()
'\x1c'.isspace()
['\u200b', '\u00a0', '\u00ad', '\ufeff', '\x7f', '\ue000', '\u2028']
['é', '中', '😀', '\u0301']
['it\'s', "q\"x", 'it\'s "x"', '\\', '\x00']
['\x85', '\u0378']
"it's"|string
['<b>'|safe, '<b>'|e]
{'k': 'v\n', "it's": ['\t']}
(1,)
()
[none, true, 1.0, 1e20]
'%r' % 'a'
'%r' % s
'%r and %s' % ('a', 'b')
'%a' % 'é😀'
'%d' % 3.9
'%d' % -3.9
'%i %u' % (3, 4)
'%5d|%-5d|%05d' % (1, 2, 3)
'%+d|% d|%+d' % (5, 5, -5)
'%x %X %o %#x %#o' % (255, 255, 8, 255, 8)
'%e %E %g %G' % (12345.678, 0.00012, 0.0001, 1e20)
'%.3e|%.0f|%#.0f|%5.1f' % (1234.5, 2.5, 2.5, 3.14159)
'%.2s|%5s|%-5s|' % ('abc', 'a', 'b')
'%c%c' % (65, 'b')
'%(a)s %(b)d' % {'a': 1, 'b': 2.7}
'%(b)05.1f' % d
'%s' % d
'%s' % [1, 2]
'%s %s' % [1, 2]
'x' % [1]
'x' % 1
'%*d' % (5, 1)
'%.*f' % (2, 3.14159)
'%%' % ()
'%s' % none
'%s' % (none,)
'%d' % 'a'
'%x' % 1.5
'%y' % 1
'%' % 1
'%s %s' % 'a'
'%d' % true
'%g' % 100000.0
'%g' % 1000000.0
'%g' % 1e-5
'%s' % 1.0
'%5%|' % ()
"%d"|format(3.9)
"%s %r"|format('a', 'b')
"%(a)s"|format(a=1)
"%s"|format([1, 2])
"%s"|format((1, 2))
"%d%%"|format(50)
"%s %s"|format(1)
"%s"|format(1, 2)
'<%s>'|safe|format('<')
'{!r}'.format('a')
'{!s:>5}|{!a}'.format('a', 'é')
'{0!r:^9}'.format('a')
'{}{}'.format(1, 2)
'{1}{0}'.format(1, 2)
'{}{0}'.format(1)
'{a} {b!r}'.format(a=1, b='x')
'{0[a]} {0[b]}'.format(d)
'{0[0]}{0[2]}'.format(l)
'{m[0][role]}'.format(m=m)
'{:>5}|{:<5}|{:^5}|{:*^5}'.format('a', 'b', 'c', 'd')
'{:05d}|{:+d}|{: d}|{:,}|{:_}'.format(42, 5, 5, 1234567, 1234567)
'{:x}|{:X}|{:#x}|{:b}|{:#b}|{:o}|{:c}'.format(255, 255, 255, 5, 5, 8, 65)
'{:.2f}|{:.0f}|{:e}|{:g}|{:%}|{:.1%}'.format(3.14159, 2.5, 12345.678, 0.0001, 0.25, 0.256)
'{:.3}|{:.3}|{:10.2f}|{:<10.2f}|'.format(3.14159, 'abcdef', 3.14159, 2.0)
'{:08.2f}|{:+.1f}|{:,.2f}'.format(3.14159, 2.0, 1234567.891)
'{:{w}}|{:{w}.{p}f}'.format('a', 3.14159, w=6, p=2)
'{:5}|{:5}|{:5}'.format('a', 1, 1.5)
'{}|{}|{}'.format(none, true, 1e16)
'{:d}'.format(true)
'{:>5}'.format(true)
'{:d}'.format(1.5)
'{:d}'.format('a')
'{:5}'.format(none)
'{:5}'.format([1])
'{{}} {}'.format(1)
'{'.format(1)
'}'.format(1)
'{5}'.format(1)
'{a}'.format(1)
'{:010,}'.format(1234)
'{:=+8d}'.format(42)
'{:=8}'.format('a')
'{:.2}'.format(5)
'{:n}'.format(1234)
'{:g}'.format(1e10)
'{:.3g}|{:#.3g}'.format(1.0, 1.0)
'{a} {b}'.format_map(d)
'{z}'.format_map(d)
'<{}>'|safe ~ '<'
('<{}>'|safe).format('<')
'é😀'.encode()
'a\n"\x80'.encode('latin-1')
'é'.encode('ascii')
'é'.encode('ascii', 'ignore')
'é'.encode('ascii', 'replace')
'é'.encode().decode()
'é'.encode()|length
'é'.encode('utf-8').hex()
'abc'.translate({97: 'x', 98: none, 99: 100})
'abc'.translate({})
'abc'.translate('a'.maketrans('ab', 'xy'))
'abc'.translate(''.maketrans('ab', 'xy', 'c'))
'abc'.translate(''.maketrans({'a': '1', 'b': none}))
'ab'.maketrans('a', 'b')
n.bit_length()
(0).bit_length()
(-8).bit_length()
neg.bit_count()
true.bit_length()
n.conjugate()
n.as_integer_ratio()
x.as_integer_ratio()
x.is_integer()
(2.0).is_integer()
x.hex()
(0.0).hex()
(-0.1).hex()
n.real ~ n.imag ~ n.numerator ~ n.denominator
x.real ~ x.imag
true.real
range(3)
range(1, 10, 2)
range(5, 0, -1)
[range(2)]
range(3)|list
range(5)[1]
range(5)[-1]
range(5)[1:3]
range(10)[::2]
range(5)[::-1]|list
range(3)|tojson
range(3)|length
2 in range(3)
range(3) is sequence
range(3) + [1]
range(3)|sum
range(3)|join('-')
range(3)|last
range(3)|reverse|list
range(0)
range(0)|list
range(5).index(3)
range(200000)
range(1.5)
range('a')
d.items()
d.keys()
d.values()
{}.items()
[d.keys()]
d.keys()|list
d.items()|length
d.keys()|first
d.items()|last
d.keys()|sort
d.values()|sum
d.keys()|join(',')
d.keys()|tojson
d.items()|list|tojson
d.keys()[0]
d.keys()[0]|default('q')
d.keys() + ['c']
'a' in d.keys()
2 in d.values()
('a', 1) in d.items()
d.keys() is sequence
d.keys() is iterable
d.items() is mapping
d.items()|map('first')|list
d.items()|sort|first
d.items()|dictsort
d|dictsort
d|dictsort(false, 'key', true)
d|dictsort(true, 'value')
d|dictsort(false, 'value', true)
{'B': 1, 'a': 2, 'C': 0}|dictsort
{'B': 1, 'a': 2, 'C': 0}|dictsort(true)
{'B': 1, 'a': 2, 'C': 0}|dictsort(by='value')
d|dictsort(by='nope')
{'a': 'x', 'b': 1}|dictsort(by='value')
{'a': 'X', 'b': 'w'}|dictsort(false, 'value')
m|groupby('role')|list
m|groupby('role')|map(attribute='grouper')|list
m|groupby('role')|map(attribute='list')|map('length')|list
l|pprint
d|pprint
s|pprint
none|pprint
(1, 2)|pprint
(1,)|pprint
[]|pprint
long|pprint
long.list|pprint
[long.description]|pprint
long.description|pprint
{'k': [long.description, 1]}|pprint
'it\'s'|pprint
['a' * 90]|pprint
['line one\nline two ' * 6]|pprint
'hello world foo bar'|wordwrap(7)
'hello world foo bar'|wordwrap(7, true, '|')
'a-b-c hyphen-ated words-here long'|wordwrap(9)
'a-b-c hyphen-ated words-here long'|wordwrap(9, break_on_hyphens=false)
'supercalifragilistic word'|wordwrap(6)
'supercalifragilistic word'|wordwrap(6, false)
'super-califragilistic word'|wordwrap(7)
'one\ntwo three\n\nfour five'|wordwrap(8)
'word -- dash --- more--dashes here'|wordwrap(8)
'  leading and   inner  '|wordwrap(10)
''|wordwrap(5)
'ünï cödé wörds'|wordwrap(5)
'abc'|wordwrap(0)
'tab\tseparated words here'|wordwrap(6)
'<b>&amp;'|striptags
'<p>a <!-- c --> b</p>  \n c'|striptags
'a < b > c'|striptags
'&lt;b&gt; &quot;&#39;&#x41;'|striptags
'a <b'|striptags
{'class': 'x', 'id': none, 'n': 1, 'q': '<"'}|xmlattr
{'class': 'x'}|xmlattr(false)
{'a b': 1}|xmlattr
{}|xmlattr
{'x': missing}|xmlattr
'http://a.b c'|urlize
'see http://example.com/x?y=1&z=2.'|urlize
'www.example.org (http://example.net) <https://x.io>'|urlize
'mail me@example.com or mailto:a@b.cd now'|urlize
'http://example.com/a_(b) example.com foo.info'|urlize
'http://example.com/very/long/path'|urlize(12)
'http://example.com'|urlize(nofollow=true, target='_blank', rel='x')
'ftp://a.b tel:123'|urlize(extra_schemes=['tel:'])
'<http://example.com>, "http://1.2.3.4:80/"'|urlize
{1: 'a', none: 'b'}
'a' is filter
'upper' is filter
'nope' is filter
'odd' is test
'nope' is test
none is none and true is true and false is false
1 is integer and 1.0 is float and true is not integer
s is lower
'A' is upper
l is sequence and d is not sequence
'a'|center(7) ~ '|'
[1, 2]|join(d='-')
'a,b'|replace(',', ';', 1)
'a\nb'|indent(2, true)
'x'|default(none) is none
missing|default('a', true)
'aXbX'.replace('X', 'y', 1)
'a b c'.split(' ', 1)
'a b c'.rsplit(maxsplit=1)
'a,b,c'.split(sep=',', maxsplit=1)
'  a b '.split()
'a\x1cb\x85c\u2028d'.splitlines()
'abc'.center(8, '*')
'abc'.ljust(5, '.') ~ 'x'.rjust(3, '0') ~ '42'.zfill(5) ~ '-42'.zfill(5) ~ '+4'.zfill(4)
'a\tb\tc'.expandtabs(4)
'abcabc'.rindex('b') ~ 'abcabc'.index('c', 3)
'abc'.index('z')
'abc'.find('c', -1)
'abcabc'.count('b', 2)
'abc'.startswith(('x', 'a')) ~ 'abc'.endswith('c', 1, 2)
'Hello'.removeprefix('He').removesuffix('lo')
'a'.join('xyz')
'a'.join([1])
'abc'.partition('b') ~ 'abc'.rpartition('z')
s.isascii() ~ 'é'.isascii()
'foo bar-baz_qux'|wordcount
'éa\u0301 中'|wordcount
'12.5'|float|round(1)
7.5|round|int
-7.5|round(0, 'floor')
1234.567|round(-2)
lipsum is defined
[1, 2]|sum(start=10)
[[1, 2], [3, 4]]|map('sum')|list
[{'a': {'b': 1}}]|map(attribute='a.b')|list
['x', 'yy']|map('length')|list
['a', 'B']|sort|join
['b', 'A']|sort(true)|join ~ ['b', 'A']|sort(case_sensitive=true)|join
[1, 'a']|sort
'abc'|first ~ 'abc'|last ~ []|first
l|unique|list ~ l|batch(2, 0)|list
l|slice(2, 'x')|list
100|filesizeformat ~ 1500000|filesizeformat ~ 1500000|filesizeformat(true)
'a b&c/d'|urlencode
'<a href="x">'|e ~ '<'|escape|upper
"x" ~ 1 ~ none ~ true ~ [1] ~ 1.0
'%s' ~ '%d'
none ~ missing ~ 'x'
1 if missing else 2
(1 if false)|default('d')
[1,2,3][1:][0] ~ 'abc'[::-1] ~ 'abc'[-2:]
d['a'] ~ d.get('zz', 9) ~ d.get('zz')
{'a': 1}|tojson ~ [1.0, none, true, 'é<']|tojson
'a'|tojson(ensure_ascii=true) ~ 'é'|tojson(ensure_ascii=true)
{'b': 1, 'a': [1]}|tojson(indent=2, sort_keys=true)
""".strip().split("\n")

STATEMENTS = [
    "{% macro f(a,b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}|{{ f(b=3,a=2) }}|{{ f() }}|{{ f(1, 2) }}",
    "{% macro f(a,b=a+1,c=b*2) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }} {{ f(1,c=0) }} {{ f(1,5) }}",
    "{% macro f(a,b='x') %}[{{ b }}]{% endmacro %}{{ f(1, missing) }}{{ f(1, none) }}{{ f(1, '') }}{{ f(1, b=missing) }}",
    "{% macro f(a,b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1,3,4,5,z=9) }}{{ f(1) }}",
    "{% macro f() %}{{ varargs|join(',') }}{{ varargs[0] }}{% endmacro %}{{ f(1,2,3) }}",
    "{% macro f() %}{% for k, v in kwargs.items() %}{{ k }}={{ v }};{% endfor %}{% endmacro %}{{ f(a=1,b=2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1,2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1,b=2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1,a=2) }}",
    "{% macro f(a, b) %}{{ a is defined }}{{ b is defined }}{% endmacro %}{{ f(1) }}{{ f() }}",
    "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x-1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro f(x, y=1) %}{{ f.name }}{{ f.arguments }}{{ f.catch_varargs }}{{ f.catch_kwargs }}{{ f.caller }}{% endmacro %}{{ f(1) }}{{ f }}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}in{% endcall %}",
    "{% macro f() %}{{ caller(1,2) }}{% endmacro %}{% call(a,b) f() %}{{ a+b }}{% endcall %}",
    "{% macro f() %}{{ caller(1) }}{% endmacro %}{% call(a,b=a) f() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}{% call f() %}{% endcall %}",
    "{% macro f() %}x{% endmacro %}{% call f() %}{% endcall %}",
    "{% macro f(a) %}{{ a }}{{ caller(2, 3, k=4) }}{{ varargs }}{% endmacro %}{% call(x) f(1, 9) %}{{ x }}{{ varargs }}{{ kwargs }}{% endcall %}",
    "{% macro outer(a) %}{% macro inner(b, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ inner(2) }}{% endmacro %}{{ outer(1) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{% set g = f %}{{ g(1) }}{% set ns = namespace(h=f) %}{{ ns.h(2) }}{{ {'k': f}.k(3) }}{{ [f][0](4) }}",
    "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('<') }}{{ f('<')|e }}{{ f('a') is string }}{{ [f('a')] }}{{ f(1)|length }}",
    "{% macro f(a=[]) %}{{ a + [1] }}{% endmacro %}{{ f() }}{{ f([0]) }}{{ f(*[[5]]) }}{{ f(**{'a': [6]}) }}",
    "{% macro f(a, b=2) -%} {{ a }}{{ b }} {%- endmacro %}{{ f(1) }}{% for i in l %}{{ f(i, b=i) }}{% endfor %}",
    "{{ undefined_function(1) }}", "{{ s(1) }}", "{{ n.foo() }}", "{{ missing.foo }}",
    "{% for x in 1,2 %}{{ x }}{% endfor %}", "{% for x in 1,2,3 if x > 1 %}{{ x }}{% endfor %}", "{% for x in 1, %}{{ x }}{% endfor %}",
    "{% for x in (1,2),(3,4) %}{{ x }}{% endfor %}", "{% for a, b in (1,2),(3,4) %}{{ a+b }}{% endfor %}",
    "{% for x in [1,2],[3] recursive %}{{ x }}{% endfor %}", "{% for x in f(1,2) %}{% endfor %}",
    "{% if 0, %}a{% endif %}{% if none %}b{% elif 1, 2 %}c{% endif %}",
    "{% set x = 1, 2 %}{{ x }}{% set x = +n %}{{ x }}{% if +n > -n %}y{% endif %}",
    "{% print n %}{% print n, s %}|", "{% print 1 -%}  x", "{% print %}",
    "{{ 'a\\\nb' }}", "{{ 'a\nb' }}", "{{ \"a\\\n\\\nb\" }}|",
    "{% autoescape true %}{{ '<' }}<{{ '<'|safe }}{{ '<' ~ '>' }}{% endautoescape %}{{ '<' }}",
    "{% autoescape false %}{{ '<' }}{% endautoescape %}",
    "{% autoescape true %}{% set x %}<{{ '<' }}{% endset %}{{ x }}{% macro f(a) %}<{{ a }}{% endmacro %}{{ f('<') }}{% endautoescape %}",
    "{% autoescape true %}{{ d }}{{ n }}{{ none }}{{ [1, '<'] }}{% endautoescape %}",
    "{% set ns = namespace(x=1) %}{{ ns }}{{ ns.x }}{{ [ns] }}{% set ns.y = [1] %}{{ ns }}",
    "{% for x in range(2) %}{{ loop.index }}{{ x }}{% endfor %}{% for x in d.keys() %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}{{ v }}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}",
    "{% raw %}{{ '\\x' }}{% endraw %}{# {{ '\\x' }} #}ok", "{%- raw -%}\n a {%- endraw -%} b",
    "{% generation %}x{% endgeneration %}{% set generation = 1 %}{{ generation }}",
    "{{ {'a': {'b': 1}}['a'] }}{{ {'}}': 1} }}{{ '}}' ~ '%}' }}", "{% set x = '%}' %}{{ x }}", "{{ {'a': 1}.items()|list }}",
    "{% filter upper %}a{{ s }}{% endfilter %}{% filter replace('a', 'b')|upper %}a{% endfilter %}",
    "{% set a = 9 %}{% with a = 1, b = a, c = n %}{{ a }}{{ b }}{{ c }}{% endwith %}{{ a }}{% with %}{{ a }}{% endwith %}",
    "{% with a = 1, b = a %}{{ b }}{% endwith %}{% with (a, b) = (1, 2), c = 3 %}{{ a }}{{ b }}{{ c }}{% endwith %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{% set a %}x{{ n }}{% endset %}{{ a }}",
    "{% for c in s %}{{ loop.changed(c) }}{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}",
    "{% set x = d.get %}{{ x('a') }}{% set u = s.upper %}{{ u() }}{{ s.split is defined }}{{ n.split is defined }}",
    "{% if m[0].content.split is defined %}text{% endif %}{% if d.items is defined %}map{% endif %}",
    "{{ m|map(attribute='content')|map('upper')|join }}{{ m|selectattr('role', 'in', ['user'])|list|length }}",
]


def render(source):
    try:
        text = _compile_jinja_template(source).render(tools=None, documents=None, add_generation_prompt=True, **INPUT)
        return text if text == text.encode("utf-8", "replace").decode() else None
    except Exception:
        return None


cases = [{"source": s, "rendered": render(s)} for s in ["{{ %s }}" % e for e in EXPRESSIONS] + STATEMENTS]
# Where a value prints its address, there is no text to compare.
cases = [case for case in cases if " at 0x" not in (case["rendered"] or "")]
cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
print(f'{{"input": {json.dumps(INPUT, ensure_ascii=False)},\n"cases": [\n{cases}\n]}}')
