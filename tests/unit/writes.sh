#!/bin/bash
# tests/unit/writes.sh ROOT - nothing but core/base/output* opens for writing, creates, renames or removes: every
# call that can is looked for in core/, plugins/ and kernels/.  Calls that read, and the few below, are fine.
set -euo pipefail
export LC_ALL=C
cd "$1"
# FILE CALL, and why this is no output
ALLOWED='
core/base/file.c ftruncate          memory without a name
core/base/process.c open            /dev/null
core/batch/io.c unlink              part of a run that was killed: tsr_output_open() makes it anew
core/cli/inspect/probe.c fdopen     pipe to the process that asked
core/cli/main.c open                /dev/null in the place of a closed descriptor
core/cli/supervise.c ftruncate      memory without a name
core/cli/supervise_mpirun.c open    page that the supervisor made, by /proc/PID/fd
core/plugin/state.c open             /dev/null in the place of a descriptor that a plugin closed
'
search() {
    find "$@" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | grep -v '^core/base/output' | xargs awk -v allowed="$ALLOWED" '
        BEGIN {
            n = split(allowed, line, "\n")
            for (i = 1; i <= n; i++)
                if (split(line[i], w, " ") > 2) may[w[1] " " w[2]] = 1
            always = "creat|creat64|mkstemps?|mkostemps?|mkstemp64|mkdtemp|mktemp|tmpnam|tempnam|tmpfile|freopen|fdopen|openat2" \
                "|rename|renameat|renameat2|unlink|unlinkat|rmdir|remove|mkdir|mkdirat|mkfifo|mkfifoat|mknod|mknodat" \
                "|symlink|symlinkat|link|linkat|truncate|ftruncate|truncate64|ftruncate64|shm_open|sem_open|mq_open" \
                "|popen|system|json_dump_file|syscall|copy_file_range"
            opens = "fopen|fopen64|open|open64|openat|openat64"
            any = "(^|[^A-Za-z0-9_.>])(" always "|" opens ")[ \t\n]*[(]"
            # as the value of a pointer; short names that variables have, too, are left out
            value = "(=|[(,?:{])[ \t\n]*&?(fopen|openat|creat|mkstemp|freopen|renameat|unlinkat|mkdtemp)[ \t\n]*([,)}:]|$)"
        }
        # what stands before the bracket that closes the call
        function arguments(text,    i, depth, c) {
            for (i = 1; i <= length(text); i++) {
                c = substr(text, i, 1)
                if (c == "(") depth++
                if (c == ")" && depth-- == 0) return substr(text, 1, i - 1)
            }
            return text
        }
        function look(statement,    rest, call, args) {
            rest = statement
            while (match(rest, any)) {
                call = substr(rest, RSTART, RLENGTH)
                args = substr(rest, RSTART + RLENGTH)
                gsub(/[^A-Za-z0-9_]/, "", call)
                rest = args
                if (statement ~ "(void|int|FILE|tsr_status)[ *]+" call "[(]" && statement !~ /=/)
                    continue # a declaration
                args = arguments(args)
                if (call == "syscall" && args !~ /SYS_(open|creat|rename|unlink|rmdir|mkdir|link|symlink|mknod|truncate)/) continue
                if (call ~ "^f?open" && call !~ /fdopen/) {
                    if (call ~ /^fopen/ && args ~ /^[^"]*("[^"]*"[^,]*)?,[ \t\n]*"r[be]*"/) continue
                    if (call !~ /^fopen/ && args ~ /O_RDONLY|O_PATH/ && args !~ /O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE/) continue
                }
                calls++
                if (!((name " " call) in may)) { print name ": " call "()"; bad++ }
                else used[name " " call] = 1
            }
            if (match(statement, value)) { print name ": " substr(statement, RSTART, RLENGTH) " as a value"; bad++ }
        }
        function whole(    i, n, part) {
            while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//))
                text = substr(text, 1, RSTART - 1) " " substr(text, RSTART + RLENGTH)
            n = split(text, part, /[;{}]/)
            for (i = 1; i <= n; i++) look(part[i])
            text = ""
        }
        FNR == 1 { whole(); name = FILENAME; files++ }
        { sub(/\/\/.*/, ""); text = text "\n" $0 }
        END {
            whole()
            for (k in may) if (!(k in used)) print "no longer there: " k
        }'
}
if found=$(search core plugins kernels) && [ -n "$found" ]; then
    echo "$found"
    echo "outputs are opened by base/output.h"
    exit 1
fi

# each of these is found, and what only reads is not
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0
while read -r line; do
    printf 'static int f(const char *path)\n{\n    %s\n}\n' "$line" >"$work/bad.c"
    search "$work" | grep -q "^$work/bad.c: " || { echo "not found: $line"; exit 1; }
    n=$((n + 1))
done <<'BAD'
FILE *f = fopen(path, "w");
FILE *f = fopen(path, "r+");
FILE *f = fopen(path, mode);
return open(path, O_WRONLY | O_CREAT, 0666);
return open(path, O_RDONLY | O_CREAT, 0666);
return open(path, flags);
int a = open(path, flags), b = open(path, O_RDONLY);
return openat(dir, path, O_RDWR);
return creat(path, 0666);
return mkstemp(path);
return rename(path, "b");
return renameat2(1, path, 1, "b", 0);
return (int)syscall(SYS_openat, 1, path, O_RDONLY);
int (*call)(const char *, ...) = creat;
(void)system("touch a");
BAD
printf 'static int f(const char *path)\n{ return open(path, O_RDONLY) + (fopen(path, "re") != NULL) + io->rename(path); }\n' >"$work/bad.c"
found=$(search "$work" | grep -v 'no longer there' || true)
[ -z "$found" ] || { echo "found in what only reads: $found"; exit 1; }
echo "$(find core plugins kernels -name '*.[ch]' | wc -l) files, $n kinds of calls"
