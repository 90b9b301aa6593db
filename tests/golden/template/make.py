#!/usr/bin/env python3
"""Records what Jinja2 renders: make.py [random SEED N FILE]

Without arguments it writes cases.json from the templates, contexts.json, expressions.txt and whitespace.txt.  With
"random" it writes N random cases, which build/tests/unit/test_template FILE checks.  Needs Jinja2 3.1.
"""
import copy
import datetime
import json
import os
import re
import sys
import warnings

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
DATE = datetime.datetime(2024, 7, 26)
OWN = {"bos_token": "<s>", "eos_token": "</s>"}


class Generation(jinja2.ext.Extension):
    """{% generation %}, as transformers has it: its text is rendered like any other."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    e = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    e.filters["tojson"] = tojson
    e.globals["raise_exception"] = raise_exception
    e.globals["strftime_now"] = DATE.strftime
    return e


def render(e, template, values):
    """{"text": ...}, {"refuses": MESSAGE} of raise_exception(), or {"fails": ...} of the engine."""
    values = {**copy.deepcopy(values), **OWN}
    try:
        return {"text": e.from_string(template).render(**values)}
    except jinja2.exceptions.TemplateError as x:
        return {"refuses" if type(x) is jinja2.exceptions.TemplateError else "fails": str(x)}
    except Exception as x:  # of Python
        return {"fails": str(x)}


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        return f.read()


def recorded():
    e = environment()
    contexts = json.loads(read("contexts.json"))
    cases = []
    for name in sorted(os.listdir(os.path.join(HERE, "templates"))):
        template = read(os.path.join("templates", name))
        for c in contexts:
            cases.append({"name": f"{name}, {c['name']}", "file": name, "context": c["name"], **render(e, template, c["values"])})
    lines = [line for line in read("expressions.txt").split("\n") if line]
    for i, template in enumerate(lines + read("whitespace.txt").split("====\n")):
        cases.append({"name": f"text {i + 1}", "template": template, **render(e, template, {})})
    return cases


def is_ours(case):
    """Not: an address, a text that is marked for HTML, what Jinja computes later than here or not at all."""
    text = case.get("text", case.get("fails", ""))
    return not re.search(r" at 0x|Markup|<class|bound method|built-in|unhashable|<function", text)


def random_cases(seed, n):
    sys.path.insert(0, HERE)
    from random_template import Maker

    e, maker, cases = environment(), Maker(seed), []
    while len(cases) < n:
        template = maker.template()
        case = {"name": f"random {seed}", "template": template, **render(e, template, Maker.VALUES)}
        if is_ours(case):
            cases.append(case)
    return cases


def main():
    warnings.simplefilter("ignore")
    random = len(sys.argv) == 5 and sys.argv[1] == "random"
    out = {"reference": f"Jinja2 {jinja2.__version__}, Python {sys.version.split()[0]}", "own": OWN, "date": DATE.strftime("%Y-%m-%d")}
    if random:
        from random_template import Maker

        out["values"] = Maker.VALUES
        out["cases"] = random_cases(int(sys.argv[2]), int(sys.argv[3]))
    else:
        out["values"] = {}
        out["cases"] = recorded()
    with open(sys.argv[4] if random else os.path.join(HERE, "cases.json"), "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
