#!/usr/bin/env python3
"""record.py - writes texts.jsonl: random schemas, and texts that Python's jsonschema accepts and refuses.

    python3 record.py >texts.jsonl        needs the package jsonschema

Left out are texts that the sampler `grammar` does not write (docs/guide/sampling.md): duplicate keys, white space at the
ends, numbers like 3.0 where an integer is meant, and other spellings of constants that are arrays or objects.
"""
import json, random, jsonschema, importlib.metadata
R=random.Random(20261128)
V=jsonschema.Draft202012Validator
WORDS=["a","b","name","x y","é","\"q","\\","日本","long text","","0","true","n"]
def schema(d):
    k=R.random()
    if d<=0: k*=0.62
    if k<0.10: return {"enum":R.sample([1,12,-3,0.5,"a","ab","é\"",None,True,False,[1,"x"],{"k":1}],R.randint(1,4))}
    if k<0.15: return {"const":R.choice(["only",7,None,True,[],"é"])}
    if k<0.32:
        s={"type":"string"}
        if R.random()<.5: s["minLength"]=R.randint(0,3)
        if R.random()<.5: s["maxLength"]=s.get("minLength",0)+R.randint(0,4)
        return s
    if k<0.40: return {"type":"integer"}
    if k<0.47: return {"type":"number"}
    if k<0.52: return {"type":"boolean","title":"t"}
    if k<0.55: return {"type":"null"}
    if k<0.60: return {"type":R.sample(["string","integer","null","boolean","number"],2)}
    if k<0.62: return {}
    if k<0.80:
        s={"type":"array","items":schema(d-1)}
        if R.random()<.4: s["minItems"]=R.randint(0,2)
        if R.random()<.4: s["maxItems"]=s.get("minItems",0)+R.randint(0,3)
        return s
    names=R.sample(WORDS,R.randint(0,5))
    s={"type":"object","properties":{n:schema(d-1) for n in names},"additionalProperties":False}
    if names and R.random()<.8: s["required"]=R.sample(names,R.randint(1,len(names)))
    return s
def anyv(d=2):
    k=R.random()
    if k<.2: return R.choice([0,1,-7,12,1000000,-3])
    if k<.3: return R.choice([0.5,-1.25,1e30,2.5e-3,12.5])
    if k<.5: return R.choice(WORDS+["only","ab","\n\t","😀"])
    if k<.6: return R.choice([True,False,None])
    if d<=0: return 1
    if k<.8: return [anyv(d-1) for _ in range(R.randint(0,3))]
    return {R.choice(WORDS):anyv(d-1) for _ in range(R.randint(0,3))}
def val(s):
    if "enum" in s: return R.choice(s["enum"])
    if "const" in s: return s["const"]
    t=s.get("type")
    if isinstance(t,list): t=R.choice(t)
    if t is None: return anyv()
    if t=="string":
        n=R.randint(s.get("minLength",0),min(s.get("maxLength",6),6)) if s.get("maxLength",6)>=s.get("minLength",0) else 0
        return "".join(R.choice("ab\"\\é日😀\n 0{") for _ in range(n))
    if t=="integer": return R.choice([0,-1,5,12,10**12])
    if t=="number": return R.choice([0,-1,5,0.5,-2.75,1e21,3e-7])
    if t=="boolean": return R.choice([True,False])
    if t=="null": return None
    if t=="array":
        return [val(s["items"]) for _ in range(R.randint(s.get("minItems",0),min(s.get("maxItems",3),4)))]
    ks=list(s["properties"]); R.shuffle(ks)
    return {k:val(s["properties"][k]) for k in ks if k in s.get("required",[]) or R.random()<.6}
def mutate(v):
    k=R.random()
    if isinstance(v,list) and v and k<.6:
        w=list(v); i=R.randrange(len(w)); w[i]=mutate(w[i]); return w
    if isinstance(v,list) and k<.8: return v+[anyv(1)]
    if isinstance(v,dict) and v and k<.4:
        w=dict(v); i=R.choice(list(w)); w[i]=mutate(w[i]); return w
    if isinstance(v,dict) and v and k<.6:
        w=dict(v); del w[R.choice(list(w))]; return w
    if isinstance(v,dict): w=dict(v); w[R.choice(WORDS)]=anyv(1); return w
    if isinstance(v,str) and k<.5: return v+R.choice("a\"é")
    return anyv(1)
def text(v):
    return json.dumps(v,ensure_ascii=False,separators=R.choice([(",",":"),(", ",": "),(",\n  ",":\t")]))
def damage(t):
    if not t: return "x"
    i=R.randrange(len(t)); k=R.random()
    if k<.4: return t[:i]+t[i+1:]
    if k<.7: return t[:i]+R.choice("{}[],:\"0e.- \\tu")+t[i:]
    return t[:i]
def composite(s):
    # an enum or const with arrays or objects has one spelling
    return any(isinstance(x,(list,dict)) for x in s.get("enum",[s.get("const")]))
def hascomp(s):
    return composite(s) or any(hascomp(x) for x in s.get("properties",{}).values()) or ("items" in s and hascomp(s["items"]))
def parse(t):
    def pairs(p):
        d=dict(p)
        if len(d)!=len(p): raise ValueError("duplicate")
        return d
    def c(x): raise ValueError(x)
    return json.loads(t,object_pairs_hook=pairs,parse_constant=c)
def integral(p):
    if isinstance(p,float): return p.is_integer()
    if isinstance(p,list): return any(map(integral,p))
    return isinstance(p,dict) and any(map(integral,p.values()))
out=[]
while len(out)<120:
    s=schema(3)
    V.check_schema(s)
    acc,ref=set(),set()
    for _ in range(24):
        v=val(s)
        for cand,dam in ((v,False),(mutate(v),False),(v,True)):
            t=json.dumps(cand,ensure_ascii=False,separators=(",",":")) if hascomp(s) else text(cand)
            if dam: t=damage(t)
            if len(t)>200 or t!=t.strip(): continue
            try:
                p=parse(t); ok=V(s).is_valid(p)
                if integral(p): continue
                if dam and ok and (hascomp(s) or any(x in t for x in ("  ", " ,", " :", "\t"))): continue
            except ValueError: ok=False
            (acc if ok else ref).add(t)
    out.append({"schema":s,"accept":sorted(acc)[:6],"refuse":sorted(ref)[:8]})
print(json.dumps({"format":"tessera.test-grammar/1","source":"jsonschema "+importlib.metadata.version("jsonschema")+", Draft202012Validator, and the json module of Python"}),)
for o in out: print(json.dumps(o,ensure_ascii=False,separators=(",",":")))
