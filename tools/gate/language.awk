# tools/gate/language.awk - the sentences of a page and what is wrong with them; language.sh calls it with
# -v page=NAME -v kind=page|help -v longest=35 -v mean=20 -v forbidden=FILE.
#
# What counts as a sentence:
# - Left out: fenced blocks, HTML comments, tables, headings, images, usage lines, and list items of which
#   at most three words are left without their links.
# - A sentence ends with . ! or ? before a space, and where a paragraph, a list item or an option ends.
# - A word is what stands between spaces and has a letter or a digit.  Inline code is one word; of a link its
#   text counts.
# Prints one line for each thing that is wrong; the exit status is 1 if there is one.

function complain(text) { printf "%s: %s\n", page, text; wrong = 1 }

function words_of(s, w, n, i, count) {
    n = split(s, w, /[ \t]+/)
    for (i = 1; i <= n; i++)
        count += w[i] ~ /[[:alnum:]]/
    return count + 0
}

function sentence(s, n) {
    n = words_of(s)
    if (n == 0)
        return
    sentences++
    words += n
    if (n > longest)
        complain(n " words, at most " longest ": " substr(s, 1, 90) "...")
}

# The text that has been gathered: a paragraph, a list item, the description of an option.
function flush_text(s, low, i, bare) {
    s = text
    text = ""
    if (s == "")
        return
    gsub(/!\[[^]]*\]\([^)]*\)/, " ", s)
    gsub(/`[^`]*`/, "CODE", s)
    if (item) {
        bare = s
        gsub(/\[[^]]*\]\([^)]*\)/, " ", bare)
        if (bare != s && words_of(bare) <= 3)
            return
    }
    while (match(s, /\]\([^)]*\)/)) # [text](target): the text
        s = substr(s, 1, RSTART - 1) substr(s, RSTART + RLENGTH)
    gsub(/[][*]/, "", s)
    low = " " tolower(s) " "
    gsub(/[^a-z0-9']+/, " ", low)
    for (i = 1; i <= phrases; i++)
        if (index(low, " " phrase[i] " "))
            complain("\"" phrase[i] "\" in: " substr(s, 1, 90) "...")
    while (match(s, /[.!?]["')]*[ \t]+/)) {
        sentence(substr(s, 1, RSTART))
        s = substr(s, RSTART + RLENGTH)
    }
    sentence(s)
}

BEGIN {
    while ((getline line < forbidden) > 0)
        if (line != "" && line !~ /^#/)
            phrase[++phrases] = line
    if (phrases == 0)
        complain("there are no forbidden phrases in '" forbidden "'")
}

/^ *```/ { flush_text(); fenced = !fenced; next }
fenced { next }
/<!--/ { flush_text(); comment = 1 }
comment { if (/-->/) comment = 0; next }
kind == "help" && /^usage:/ { usage = 1 }
usage { if (/^$/) usage = 0; next }
/^[ \t]*$/ { flush_text(); item = 0; next }
/^#/ || /^ *\|/ { flush_text(); item = 0; next }
kind == "help" && /^ *[a-z ]+:$/ { flush_text(); next } # "options:"
kind == "help" && /^  +-/ { # an option: its description stands after two spaces, or in the next lines
    flush_text()
    sub(/^ +/, "")
    gap = index($0, "  ")
    text = gap ? substr($0, gap) : ""
    sub(/^ +/, "", text)
    next
}
/^ *([-*]|[0-9]+\.) / { flush_text(); item = 1; sub(/^ *([-*]|[0-9]+\.) +/, "") }
{ sub(/^[ \t>]+/, ""); text = text == "" ? $0 : text " " $0 }

END {
    flush_text()
    if (fenced)
        complain("a fenced block has no end")
    if (sentences && words / sentences > mean)
        complain(sprintf("%.1f words in a sentence, the mean of %d; at most %d", words / sentences, sentences, mean))
    if (show)
        printf "%s: %d sentences, mean %.1f\n", page, sentences, sentences ? words / sentences : 0
    exit wrong
}
