"""Random templates over a few fixed values."""
import json
import random

VALUES = {"messages":[{"role":"user","content":" Hi <b> there\n"},{"role":"assistant","content":"Ok. \u5929\u00df","tool_calls":[{"function":{"name":"f","arguments":{"b":1,"a":[1.5,None,True]}}}]},{"role":"tool","content":None,"n":3}],
 "tools":[{"type":"function","function":{"name":"depth","parameters":{"properties":{"lat":{"type":"number"},"unit":{"type":"string","enum":["m","ft"]}},"required":["lat"]}}}],
 "s":"Hello, World of_things","e":"","u":"\u00c9t\u00e9 \u03a3\u03a3 \u2028x","n":7,"z":0,"f":2.5,"neg":-3,"t":True,"no":None,"l":[3,1,2],"ls":["b","A","c","a"],"d":{"x":1,"y":[1,2],"items":5},"flag":False,"big":1e20,"sm":1e-7}

names=list(VALUES)+["undef"]
strs=["a","","  x ","A-b c","l","o","Hi\n","%s","{}","'","\"","é","\u00df","1","2.5"," 12 ","x,y,,z","\ta\n b"]
def lit():
    k=R.random()
    if k<.3: return json.dumps(R.choice(strs),ensure_ascii=False) if R.random()<.5 else repr(R.choice(strs))
    if k<.5: return str(R.choice([0,1,2,3,-1,10,100,7]))
    if k<.6: return repr(R.choice([0.5,1.0,2.5,1e3,1e16,0.1,1.25e-5,123456.789]))
    if k<.7: return R.choice(["true","false","none","True","None"])
    if k<.8: return "["+", ".join(E(0) for _ in range(R.randint(0,3)))+"]"
    if k<.87: return "{"+", ".join(repr(R.choice(strs))+": "+E(0) for _ in range(R.randint(0,3)))+"}"
    if k<.93: return "("+", ".join(E(0) for _ in range(R.randint(0,3)))+("," if R.random()<.3 else "")+")"
    return R.choice(names)
def arg(): return E(0)
FILTERS=["trim","length","upper","lower","first","last","list","string","int","float","reverse","capitalize","title","safe","items","unique","sort","sum","min","max","abs","dictsort","tojson","e","count","join","default","round","indent",
 "join(', ')","join(ls)","default('q')","default('q', true)","d(n)","tojson(indent=2)","tojson(indent=1, sort_keys=true)","tojson(separators=(',', ':'))","tojson(ensure_ascii=true)","indent(2)","indent(2, true)","indent(2, first=true, blank=true)","replace('a','b')","replace('l','',1)","replace('','-')","map('upper')|list","map(attribute='role')|list","map('int')|join","map('length')|list","select|list","select('string')|list","selectattr('role','equalto','user')|list","selectattr('role')|list","rejectattr('content','none')|list","reject('odd')|list","reject('none')|list","sort(reverse=true)","sort(attribute='role')|map(attribute='role')|list","unique|list","batch(2)|list","round(1)","round(2,'floor')","round(0,'ceil')","int(5)","int(0,16)","float(1.5)","trim('x ')","center(10)","dictsort(by='value')","dictsort(reverse=true)","max(attribute='n')","sum(attribute='n')","map(attribute='n', default=0)|sum","format(1)","reverse|list","items|list","sort(case_sensitive=true)","unique(true)|list","min(true)"]
TESTS=["defined","undefined","none","boolean","true","false","integer","float","number","string","mapping","sequence","iterable","callable","odd","even","upper","lower","divisibleby 3","divisibleby(2)","eq 1","ne 'a'","in l","in 'abc'","lt 3","ge 2","sameas true","sameas none","equalto('a')","filter","test"]
METH=["strip()","lstrip()","rstrip()","strip('H ')","split()","split('l')","split(',')","split(' ', 1)","rsplit(' ', 1)","rsplit('l', 1)","rsplit()","split(none, 1)","splitlines()","splitlines(true)","startswith('H')","endswith(('d','s'))","endswith('s')","replace('l','L')","replace('o','0',1)","upper()","lower()","title()","capitalize()","swapcase()","find('o')","rfind('o')","find('o',5)","find('o',-3)","index('l')","count('l')","count('')","isdigit()","isalpha()","isspace()","isupper()","islower()","isalnum()","items()","keys()","values()","items()|list","get('x')","get('role','?')","get('nope')","get('nope', n)","join(ls)","zfill(5)","ljust(8)","rjust(8,'.')","center(9,'*')","partition(' ')","rpartition(' ')","removeprefix('He')","removesuffix('s')","format(1)","format(n, x=2)","index(1)","count(1)","isnumeric()","isascii()","lstrip('Hel')","copy()"]
BIN=["+","-","*","/","//","%","~","==","!=","<",">","<=",">=","in","not in","and","or"]
def sl(): return "["+R.choice(["0","-1","1","::-1","1:",":2",":-1","-2:","::2","1:3","3:0:-1","5","'x'","'role'","-1:0:-2","n","'items'"])+"]"
def E(d):
    if d<=0: return R.choice(names) if R.random()<.5 else lit()
    k=R.random()
    if k<.15: return lit()
    if k<.25: return R.choice(names)
    if k<.45: return E(d-1)+" "+R.choice(BIN)+" "+E(d-1)
    if k<.62: return "("+E(d-1)+")|"+R.choice(FILTERS)
    if k<.70: return "("+E(d-1)+") is "+R.choice(["","not "])+R.choice(TESTS)
    if k<.80: return "("+E(d-1)+")."+R.choice(METH)
    if k<.88: return "("+E(d-1)+")"+sl()
    if k<.92: return "("+E(d-1)+")."+R.choice(["role","content","x","y","items","function","0","name","upper"])
    if k<.95: return "("+E(d-1)+" if "+E(d-1)+(" else "+E(d-1) if R.random()<.8 else "")+")"
    if k<.97: return R.choice(["not ","-","+"])+E(d-1)
    return R.choice(["range(%s)"%R.choice(["3","1, 4","5, 0, -2","n"]),"dict(a=1, b=%s)"%E(0),"namespace(a=%s).a"%E(0)])
def ws(t):
    a=R.choice(["","","-","+"]); b=R.choice(["","","-"])
    return "{%"+a+" "+t+" "+b+"%}"
def text(): return R.choice(["","x","\n"," \n ","  ","a b\n","\n\n","  <|im|>\n\t","}}","%}","{ {"])
V=["v","w","x","n"]
def S(d):
    k=R.random()
    if d<=0 or k<.35: return text()+R.choice(["{{ %s }}","{{- %s }}","{{ %s -}}","{{- %s -}}"])%E(R.randint(0,2))+text()
    if k<.5: return text()+ws("if "+E(1))+B(d-1)+(ws("elif "+E(1))+B(d-1) if R.random()<.3 else "")+(ws("else")+B(d-1) if R.random()<.5 else "")+ws("endif")
    if k<.7:
        tgt=R.choice(["v","v","k, v"]); it=R.choice(["l","ls","messages","d.items()","d|dictsort","tools","range(3)","s[:3]","undef",E(1),"messages[::-1]"])
        return text()+ws("for %s in %s%s"%(tgt,it,R.choice([""," if v","","  if loop is undefined or true" if False else ""])))+R.choice(["{{ loop.index }}{{ loop.last }}","{{ loop.first }}{{ loop.revindex0 }}{{ loop.length }}","{{ v }}{{ loop.previtem is defined }}{{ loop.nextitem }}","{{ loop.cycle('a','b') }}{{ loop.changed(v) }}",""])+B(d-1)+R.choice(["","",ws("if loop.index0 > 0")+ws("break")+ws("endif"),ws("if v")+ws("continue")+ws("endif")])+B(d-2)+(ws("else")+B(d-1) if R.random()<.2 else "")+ws("endfor")
    if k<.8: return text()+ws("set %s = %s"%(R.choice(V),E(1)))+text()+"{{ %s }}"%R.choice(V)
    if k<.84: return ws("set %s%s"%(R.choice(V),R.choice([""," | upper"," | trim | length"])))+B(d-1)+ws("endset")+"{{ %s }}"%R.choice(V)
    if k<.88: return ws("set ns = namespace(a=%s)"%E(0))+ws("for v in l")+ws("set ns.a = %s"%R.choice(["v","ns.a ~ v",E(1)]))+ws("set w = v")+ws("endfor")+"{{ ns.a }}{{ w }}"
    if k<.93: return ws("macro m(a, b=%s)"%E(0))+R.choice(["{{ a }}{{ b }}{{ n }}","{{ varargs }}{{ kwargs }}","{{ caller() }}[{{ a }}]","{{ b ~ a }}"])+B(d-1)+ws("endmacro")+R.choice(["{{ m(%s) }}"%E(0),"{{ m(1, b=2) }}","{{ m() }}","{{ m(1,2,3,c=4) }}","{% call m(1) %}in{{ n }}{% endcall %}","{{ m(a=%s) }}"%E(0)])
    if k<.95: return ws("filter "+R.choice(["upper","trim","replace('a','b')|title"]))+B(d-1)+ws("endfilter")
    if k<.97: return ws("with v = %s, w = 2"%E(0))+B(d-1)+ws("endwith")+"{{ v }}"
    if k<.98: return text()+"{#"+R.choice(["","-","+"])+" c "+R.choice(["","-"])+"#}"+text()
    return ws("raw").replace("+","")+"{{ x }}"+text()+"{% endraw %}"
def B(d): return "".join(S(d) for _ in range(R.randint(1,2))) if d>0 else text()


class Maker:
    VALUES = VALUES

    def __init__(self, seed):
        global R
        R = random.Random(seed)

    def template(self):
        return "{{ %s }}" % E(R.randint(1, 4)) if R.random() < 0.6 else B(R.randint(1, 3))
