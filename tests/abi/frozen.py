#!/usr/bin/env python3
"""frozen.py SOURCE_ROOT - the public headers are those of every frozen minor but for what docs/abi.md, Versions, allows:
a declaration that is new, a member at the end of a struct that states its size, a name for a reserved member, another body
of an inline function or of a macro with arguments; all of it only with a higher TSR_ABI_MINOR.  Edits of other kinds are made up and must be found.
tests/abi/headers-1.N holds minor N; tools/gate/abi.sh --freeze writes the one of today."""
import os
import re
import sys

IGNORED = re.compile(r"#\s*(include|if|ifdef|ifndef|else|elif|endif)\b|#define TSR_\w*_H$|#define TSR_ABI_MINOR\b")
GROWS = re.compile(r"\bstruct_size\b")
STRIDED = {"struct tsr_option"}  # a component states the distance of its options


def chunks(text):
    """Top-level declarations and macros, without comments, spaces made alike."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"#ifdef __cplusplus\s+(extern \"C\" \{|\})\s+#endif", "", text)
    text = text.replace("\\\n", " ")
    found, part, depth = [], "", 0
    for line in text.split("\n"):
        if IGNORED.match(line.strip()):
            continue
        if depth == 0 and not part.strip() and line.lstrip().startswith("#"):
            found.append(" ".join(line.split()))
            continue
        for c in line + " ":
            part += c
            depth += (c in "{(") - (c in "})")
            is_body = c == "}" and not re.match(r"\s*(struct|union|enum|typedef|static const|extern const)\b[^(]*\{", part)
            if depth == 0 and (c == ";" or is_body):
                found.append(" ".join(part.split()))
                part = ""
    if part.strip():
        sys.exit("a declaration has no end: %s" % part.strip()[:80])
    return found


def read(include):
    folder = os.path.join(include, "tessera")
    texts = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".h"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                texts[name] = f.read()
    return texts


def minor_of(texts):
    return int(re.search(r"^#define TSR_ABI_MINOR +(\d+)", texts["plugin.h"], re.M).group(1))


def key(chunk):
    """What a later declaration of the same thing is known by."""
    chunk = re.sub(r"__attribute__\(\(.*?\)\)+ ?", "", chunk.split("{")[0]) + chunk[len(chunk.split("{")[0]):]
    for form in (r"#define \w+", r"(struct|union|enum) \w+(?= \{)", r".*?\b\w+(?=\()"):
        m = re.match(form, chunk)
        if m:
            return m.group(0)
    return chunk


def members(chunk):
    body, depth, found, part = chunk[chunk.index("{") + 1:chunk.rindex("}")], 0, [], ""
    for c in body:
        depth += (c in "{(") - (c in "})")
        part += c
        if c == ";" and depth == 0:
            found.append(" ".join(part.split()))
            part = ""
    return found


def struct_differs(name, old, new):
    was, now = members(old), members(new)
    for i, m in enumerate(was):
        if i >= len(now):
            return "%s lost '%s'" % (name, m)
        if now[i] != m and not (m.endswith(" reserved;") and now[i].rsplit(" ", 1)[0] == m.rsplit(" ", 1)[0]):
            return "%s has '%s' where '%s' was" % (name, now[i], m)
    if len(now) > len(was) and not GROWS.search(old) and name not in STRIDED:
        return "%s states no size and has grown by '%s'" % (name, now[len(was)])
    return None


def compare(frozen, today):
    """The first edit that is no append, or None; and whether anything differs."""
    old = [c for t in frozen.values() for c in chunks(t)]
    new = [c for t in today.values() for c in chunks(t)]
    by_key = {}
    for c in new:
        by_key.setdefault(key(c), []).append(c)
    differs = sorted(old) != sorted(new)
    for c in old:
        k = key(c)
        if c in by_key.get(k, ()):
            continue
        if k not in by_key:
            return "'%s' is gone" % k, True
        later = by_key[k][0]
        if re.match(r"(struct|union) \w+ \{", c):
            why = struct_differs(k, c, later)
        elif c.startswith(k + "(") and c.split(")")[0] == later.split(")")[0]:
            why = None  # a macro with arguments, as an inline function
        elif c.endswith("}") and c.split("{")[0] == later.split("{")[0]:
            why = None
        else:
            why = "'%s' was '%s'" % (later[:160], c[:160])
        if why:
            return why, True
    return None, differs


def verdict(minor, frozen, today):
    why, differs = compare(frozen, today)
    if why:
        return "ABI 1.%d is frozen, and %s; that breaks plugins (docs/abi.md, Versions)" % (minor, why)
    if differs and minor_of(today) <= minor:
        return "the headers are not those of ABI 1.%d, which is frozen: raise TSR_ABI_MINOR (docs/abi.md, Changes)" % minor
    return None


def edits(today):
    """(name, file, from, to, words of the refusal with the same minor, and with a higher one; None: allowed)."""
    raised = "raise TSR_ABI_MINOR"
    return [
        ("a comment", "codec.h", "/* Ends of a stream. */", "/* Both ends. */", None, None),
        ("a new macro", "codec.h", "#define TSR_CODEC_ENCODES", "#define TSR_CODEC_MORE 7u\n#define TSR_CODEC_ENCODES", raised, None),
        ("a new struct", "codec.h", "struct tsr_codec_v1 {", "struct tsr_more {\n uint64_t one;\n};\nstruct tsr_codec_v1 {", raised, None),
        ("an appended member", "codec.h", "    void *state;\n", "    void *state;\n    uint64_t later;\n", raised, None),
        ("a reserved member with a name", "codec.h", "    uint32_t     reserved; /* zero ", "    uint32_t     used; /* zero ", raised, None),
        ("an inserted member", "codec.h", "    uint64_t     rows, cols;", "    uint64_t early;\n    uint64_t     rows, cols;", "early", "early"),
        ("another type", "codec.h", "    uint64_t     wire_bytes;", "    int64_t     wire_bytes;", "int64_t wire_bytes", "int64_t wire_bytes"),
        ("a lost member", "codec.h", "    void *state;\n", "", "lost 'void *state;'", "lost 'void *state;'"),
        ("another value", "codec.h", "#define TSR_CODEC_DECODES 1u", "#define TSR_CODEC_DECODES 2u", "TSR_CODEC_DECODES 1u", "TSR_CODEC_DECODES 1u"),
        ("another name", "codec.h", "#define TSR_CODEC_DECODES 1u", "#define TSR_CODEC_DECODER 1u", "is gone", "is gone"),
        ("a longer struct without a size", "backend_candidates.h", "    float    logit;\n", "    float    logit;\n    uint64_t more;\n", "states no size", "states no size"),
        ("another inline body", "f16.h", "return", "return 0 +", raised, None),
        ("another body of a macro", "table.h", "#define TSR_HAS(type, p, m)", "#define TSR_HAS(type, p, m) (p) &&", raised, None),
        ("another argument", "host.h", "int32_t (*cancelled)(void *ctx);", "int32_t (*cancelled)(void *ctx, int now);", "int now", "int now"),
    ]


def main():
    root = sys.argv[1]
    today = read(os.path.join(root, "core/include"))
    failed, count = 0, 0
    for minor in range(minor_of(today) + 1):
        include = os.path.join(root, "tests/abi/headers-1.%d" % minor)
        if not os.path.isdir(include):
            print("tests/abi/headers-1.%d is missing; tools/gate/abi.sh --freeze writes the one of today" % minor)
            failed = 1
            continue
        frozen = read(include)
        count += sum(len(chunks(t)) for t in frozen.values())
        why = verdict(minor, frozen, today)
        if why:
            print(why)
            failed = 1
    print("%d declarations of %d minors" % (count, minor_of(today) + 1))
    if failed:
        return 1
    minor = minor_of(today)
    for name, file, was, to, same, higher in edits(today):
        for raised, words in ((False, same), (True, higher)):
            edited = dict(today)
            edited[file] = edited[file].replace(was, to, 1)
            if edited[file] == today[file]:
                print("%s: '%s' is not in %s" % (name, was, file))
                failed = 1
                break
            if raised:
                edited["plugin.h"] = re.sub(r"(#define TSR_ABI_MINOR +)\d+", r"\g<1>%d" % (minor + 1), edited["plugin.h"])
            why = verdict(minor, today, edited)
            if (why is None) != (words is None) or (words and words not in why):
                print("%s%s: %s; expected %s" % (name, " in a later minor" if raised else "", why, words))
                failed = 1
    return failed


sys.exit(main())
