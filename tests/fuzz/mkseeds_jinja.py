#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_jinja: small templates that together use every construct.

usage: mkseeds_jinja.py [tests/fuzz/seeds]    (standard library only; the output is the same on every run)
"""
import os
import sys

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds")
VARIABLES = (
    b'{"s":"Hello W\xc3\xb6rld","l":[3,1,2],"d":{"b":1,"a":[1,{"x":"y"}]},"n":null,"f":1.5,"t":true,'
    b'"messages":[{"role":"user","content":"hi","n":2},{"role":"assistant","content":"A","n":1}]}'
)
TEMPLATES = r"""
{{ s[1:3] }}|{{ s[::-1] }}|{{ s[-3:] }}|{{ s[::2] }}
{{ l[::-1] }} {{ l[-1] }} {{ l[5] }} {{ l[-2:] }} {{ (1,) }} {{ (1,2)[0] }}
{{ d }} {{ d.items }} {{ d['items'] }} {{ d.a[1].x }}
{{ d|tojson }} {{ d|tojson(indent=2) }} {{ l|tojson }} {{ 1.0|tojson }} {{ 'é\u2028<'|tojson }}
{{ 1.5 }} {{ 1e20 }} {{ 1e16 }} {{ 123456789.0 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1/3 }} {{ 2**-1 }} {{ 7//2 }} {{ -7//2 }} {{ -7%3 }} {{ 7.5//2 }} {{ 2**10 }} {{ -2**2 }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ not 1 == 2 }} {{ 2 in l }} {{ 'o' in s }} {{ 'b' in d }} {{ 5 not in l }}
{{ s|upper }} {{ s|lower }} {{ s|title }} {{ s.title() }} {{ s|capitalize }} {{ "it's ok"|title }} {{ "it's ok".title() }}
{{ s.split() }} {{ s.split(' ') }} {{ s.split('o',1) }} {{ s.rsplit('o',1) }} {{ s.rsplit(None,1) }} {{ ' a b '.split(None,1) }} {{ ''.split('x') }} {{ ''.split() }}
{{ messages|map(attribute='role')|join(', ') }} {{ messages|selectattr('role','equalto','user')|list }} {{ messages|sum(attribute='n') }} {{ messages|sort(attribute='n')|map(attribute='content')|list }}
{{ l|sort }} {{ l|sort(reverse=true) }} {{ ['b','A','c']|sort }} {{ l|min }} {{ l|max }} {{ l|sum }} {{ l|reverse|list }} {{ [1,1,2]|unique|list }} {{ l|first }} {{ l|last }} {{ []|first }}
{% for k, v in d|dictsort %}{{k}}={{v}};{% endfor %} {% for k in d %}{{k}}{% endfor %} {% for k,v in d.items() %}{{k}}{% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.changed(x>1) }},{% else %}none{% endfor %}{% for x in [] %}{% else %}E{% endfor %}
{% for x in l if x > 1 %}{{ loop.length }}{{x}}{% endfor %}{% for x in l %}{% if x==1 %}{% continue %}{% endif %}{{x}}{% endfor %}{% for x in l %}{% if x==1 %}{% break %}{% endif %}{{x}}{% endfor %}
{% macro m(a, b=2, c='z') %}[{{a}}{{b}}{{c}}{{ caller() if caller is defined }}]{% endmacro %}{{ m(1) }}{{ m(1,c=5) }}{{ m() }}{% call m(7) %}hey{% endcall %}{% call(u) m(7) %}hey{% endcall %}
{% set ns = namespace(a=1) %}{% for x in l %}{% set ns.a = ns.a + x %}{% set y = x %}{% endfor %}{{ ns.a }}{{ y }}{% set y = 1 %}{% for x in l %}{{ y }}{% set y = x %}{{ y }}{% endfor %}{{ y }}
{% set x %}  body {{ 1 }} {% endset %}[{{ x }}]{% set x | trim | upper %}  body {{ 1 }} {% endset %}[{{ x }}]{% filter upper %}abc{% endfilter %}{% with a=1, b=2 %}{{ a+b }}{% endwith %}
{{ 'a' if false }}|{{ undefinedthing }}|{{ undefinedthing|default('x') }}|{{ ''|default('x', true) }}|{{ undefinedthing is defined }}|{{ n is none }}|{{ d.nope is defined }}|{{ d.nope.x is defined }}
{{ undefinedthing.x }}
{{ 'x' + 1 }}
{{ 'x' ~ 1 ~ none ~ true ~ 1.0 ~ [1,'a'] ~ {'a':none} }}
{{ '%s-%d-%.2f' % ('a', 3, 1.234) }} {{ '%s' % 'x' }} {{ "{} {}".format(1,'b') }} {{ "{0}{1}{0} {x} {{}}".format(1,2,x=3) }} {{ '%s %s'|format('a',1) }}
{{ 'a,b'|replace(',', ';') }} {{ 'aaa'|replace('a','b',2) }} {{ 'abc'|replace('','-') }} {{ 'abc'.replace('b','') }}
{{ 'a\nb\n\nc'|indent }} {{ 'a\nb\n\nc'|indent(2, true) }} {{ 'a\nb\n\nc'|indent(2, true, true) }}
{{ '12'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ 3.9|int }} {{ '3.7'|int }} {{ '3.5'|float }} {{ 'q'|float }} {{ 2.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(0,'ceil') }} {{ -3|abs }}
{{ 'abc' is string }} {{ 1 is number }} {{ true is number }} {{ true is boolean }} {{ true is integer }} {{ 1 is integer }} {{ 1.0 is float }} {{ l is iterable }} {{ d is mapping }} {{ d is sequence }} {{ s is sequence }} {{ 4 is divisibleby 2 }} {{ 3 is odd }} {{ 1 is sameas 1 }} {{ n is sameas none }} {{ 1 is eq 1 }} {{ 'a' is in ['a'] }} {{ range is callable }}
{{ range(5)|list }} {{ range(1,10,3)|list }} {{ range(5,0,-2)|list }} {{ dict(a=1,b='c') }} {{ [1,2]+[3] }} {{ 'ab'*3 }} {{ [1]*2 }}
{{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ 'abcabc'.rfind('c') }} {{ 'abca'.count('a') }} {{ '-'.join(['a','b']) }} {{ 'abc'.startswith('ab') }} {{ 'abc'.startswith(('x','a')) }} {{ 'a b'.isalpha() }} {{ '12'.isdigit() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'a\nb\r\nc'.splitlines() }} {{ 'xxabxx'.strip('x') }} {{ 'prefix'.removeprefix('pre') }}
{% raw %}{{ x }}{% endraw %}{# c #}{{ '{{' }}{{- ' x ' -}}  y
  {%- if true %} a {%- endif %}
  {% if true %}
    b
  {% endif %}
{{ 'a' 'b' }} {{ "q\"\'\t\x41\u00e9\\" }} {{ 'a' | upper ~ 'b' }} {{ -1|abs }} {{ 1 if true else 2 }} {{ [1,2,3][1:]|length }} {{ 3|string + 'x' }} {{ (1 + 2)|string }}
{{ d.get('zz','def') }} {{ d.get('b') }} {{ d.keys()|list }} {{ d.values()|list }} {{ messages[0]['role'] }} {{ messages[-1].content }} {{ messages.0.role }}
{% for m in messages recursive %}{{ m.role }}{% if loop.depth < 2 %}{{ loop([{'role':'in'}]) }}{% endif %}{% endfor %}
{{ none + 1 }}
{{ l.append(4) }}
{{ [none, true, 'x']|select|list }} {{ l|select('odd')|list }} {{ l|reject('gt', 1)|list }} {{ l|map('string')|join('-') }} {{ messages|rejectattr('n','gt',1)|map(attribute='role')|list }} {{ ['a','B']|map('upper')|list }}
{{ {'a':1, 2:'x', none:true, 1.5:2}|tojson }} {{ 'x'|tojson(ensure_ascii=true) }} {{ 'é😀'|tojson(ensure_ascii=true) }} {{ d|tojson(separators=(',',':')) }} {{ d|tojson(sort_keys=true) }}
{{ 'é'|length }} {{ 'aé😀'[2] }} {{ 'ÀÉ'|lower }} {{ 'àß'|upper }} {{ 'foo bar'|wordcount }} {{ '<a&">'|e }} {{ ['a']|string }} {{ {}|string }} {{ ()|string }}
{{ 1 is lt 2 }} {{ 'A' is upper }} {{ 5 is gt(3) }} {{ not undefinedthing }} {{ undefinedthing|length }} {{ undefinedthing == undefinedthing2 }} {{ undefinedthing|list }} {{ undefinedthing|upper }} {{ 'a' in undefinedthing }}
{{ 1,2 }} {% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (a, b) = [3,4] %}{{ a }}{{ b }} {% for a, b in [(1,2)] %}{{ a+b }}{% endfor %}
{{ s|truncate(3) }}
{{ 1_000 }} {{ 'a' ~ ('b' if t else 'c') }} {{ t and s }} {{ n or 'alt' }} {{ (n or {}).x is undefined }} {{ f|string }} {{ f|int }}
{{ "a" is not none and "b" }} {{ 1 + 2 * 3 ~ 'x' }} {{ 10 - 3 - 2 }} {{ 2 ** 3 ** 2 }} {{ 'a' * 2 + 'b' }} {{ not true or true }}
{% if l %}y{% elif n %}z{% else %}w{% endif %}{% if n %}{% elif l[0]==3 %}three{% endif %}{% if n %}a{% else %}{% if t %}in{% endif %} out{% endif %}
{{ '日本'|tojson }} {{ ['日\t']|string }} {{ '\x07'|tojson }} {{ ['\x07\x7f\u200b']|string }}
"""

folder = os.path.join(OUT, "jinja")
os.makedirs(folder, exist_ok=True)
for number, line in enumerate(TEMPLATES.strip().split("\n")):
    with open(os.path.join(folder, "template%02d" % number), "wb") as f:
        f.write(line.encode() + b"\0" + VARIABLES)
