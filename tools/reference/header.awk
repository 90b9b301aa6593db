# A page of docs/reference from a header of core/include/tessera: each declaration with the comment in front of
# it; each function of a table on its own.  -v name=codec.h; the header is given twice: first for the names of its
# tables.

function strip(s) {
    sub(/^[ \t]*\/\*+ ?/, "", s)
    sub(/[ \t]*\*+\/[ \t]*$/, "", s)
    sub(/^[ \t]*\*( |$)/, "", s)
    return s
}
function add_comment(line,    s) {
    s = strip(line)
    comment = comment (comment == "" ? "" : "\n") s
}
function say_comment() {
    if (comment != "") print comment "\n"
    comment = ""
}
# The name that a declaration gives.
function named(text,    m) {
    if (match(text, /\(\*[a-z_0-9]+\)/)) return substr(text, RSTART + 2, RLENGTH - 3)
    if (match(text, /^#define [A-Za-z_0-9]+/)) return substr(text, 9, RLENGTH - 8)
    if (match(text, /^(struct|union|enum) [a-z_0-9]+/)) return substr(text, 1, RLENGTH)
    if (match(text, /tsr_[a-z_0-9]+\(/)) return substr(text, RSTART, RLENGTH - 1)
    if (text ~ /^#if/ && match(text, /\n#define [A-Za-z_0-9]+/)) return substr(text, RSTART + 9, RLENGTH - 9)
    if (match(text, /[a-z_0-9]+\(/)) return substr(text, RSTART, RLENGTH - 1)
    if (match(text, /^typedef .*;/)) { m = text; sub(/;.*/, "", m); sub(/.* \**/, "", m); return m }
    return ""
}
function flush_code(level,    n) {
    if (code ~ /^#if[^\n]*\n#endif\n$/) code = "" # only includes stood there
    if (code == "") return
    n = named(code)
    if (n != "") print level " `" n "`\n"
    say_comment()
    print "```c\n" code "```\n"
    code = ""
}
# Members of a table, without the indentation.
function flush_member(    s) {
    if (member == "") { return }
    if (member ~ /\(\*/) {
        print "### `" named(member) "`\n"
        say_comment()
        print "```c\n" member "```\n"
    } else {
        say_comment()
        print "```c\n" member "```\n"
    }
    member = ""
}
BEGIN { print "# tessera/" name "\n"; front = 1 }
NR == FNR {
    if (/^struct [a-z_0-9]+ \{/) of = $2
    if (/^}/) of = ""
    if (of != "" && /\(\*/) tables[of] = 1
    next
}
/^#(ifndef|define) TSR_[A-Z0-9_]+_H$/ || /^#include/ || /^#ifdef __cplusplus$/ && !code_open || /^extern "C" \{$/ ||
    /^\/\* ---- / { skipping = /__cplusplus/; next }
skipping { if (/^#endif/) skipping = 0; next }
/^#endif$/ && !conditional { next }
in_comment { add_comment($0); if (/\*\/[ \t]*$/) in_comment = 0; next }
# a table of functions: its members one by one
table && /^};/ { flush_member(); table = 0; next }
table && /^ +\/\*/ { flush_member(); add_comment($0); if (!/\*\//) in_comment = 1; next }
table && /^$/ { flush_member(); say_comment(); next }
table {
    line = $0
    sub(/^    /, "", line)
    member = member line "\n"
    if (line ~ /;/ && member ~ /\(\*/) flush_member()
    next
}
!inside && /^\/\*/ {
    flush_code("##")
    add_comment($0)
    if (!/\*\/[ \t]*$/) in_comment = 1
    next
}
/^$/ && !inside {
    flush_code("##")
    say_comment()
    next
}
/^struct [a-z_0-9]+ \{/ && $2 in tables {
    flush_code("##")
    n = $2
    print "## `struct " n "`\n"
    say_comment()
    table = 1
    next
}
{
    if (/^#if/) conditional++
    code = code $0 "\n"
    if (/\{[^}]*$/) inside = 1
    if (/^}/) { inside = 0; flush_code("##") }
    if (/^#endif/) conditional--
    next
}
END { flush_code("##"); say_comment() }
