#!/bin/bash
# tests/unit/json_calls.sh ROOT - jansson's own reading and writing loses parts when memory runs out (a quotation mark
# of a key, a whole member): core/base/json.c alone calls it; and nothing is added to a document without a look at
# the answer.
set -euo pipefail
export LC_ALL=C
cd "$1"
search() {
    grep -rnE '\bjson_(dump|load|sprintf|vsprintf|copy|deep_copy)[a-z_]*\(' --include='*.[ch]' "$@" | grep -v '^core/base/json\.[ch]:' || true
    grep -rnE '\(void\) *json_(object_set|object_update|array_append|array_insert|array_extend)[a-z_]*\(' --include='*.[ch]' "$@" || true
    grep -rnE '"[^"]*:[oO][*?][^"]*"' --include='*.c' "$@" | grep 'json_pack\|"{' || true
}
found=$(search core plugins kernels)
if [ -n "$found" ]; then
    echo "$found"
    echo "JSON is read and written by base/json.h; tsr_json_add() and tsr_json_set() build it"
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for line in 'char *s = json_dumps(j, 0);' 'json_t *k = json_copy(j);' '(void)json_object_set_new(j, "a", v);' 'json_t *j = json_loadb(s, n, 0, NULL);' \
    'json_t *j = json_pack("{s:s, s:o*}", "a", "b", "c", may_be_null());'; do
    printf '    %s\n' "$line" >"$work/bad.c"
    [ -n "$(search "$work")" ] || { echo "not found: $line"; exit 1; }
done
