#!/bin/bash
# A plugin exports tsr_plugin_v1 and nothing else, asks for no symbol of ours and for no C++, and
# needs the C library alone (`ilp` the library that it is there for, too); the program offers nothing to
# plugins.
#   symbols.sh TESSERA PLUGIN_DIR NAME...      the names that must be there
set -u
tessera=$1 dir=$2
shift 2
failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad() {
    echo "$1"
    failed=1
}

# wrong FILE: what a plugin must not have, a line each.
wrong() {
    local exported ours cxx dynamic
    exported=$(nm -D --defined-only "$1" | awk '{print $NF}')
    [ "$exported" = tsr_plugin_v1 ] || echo "exports: ${exported//$'\n'/ }"
    ours=$(nm -D --undefined-only "$1" | awk '{print $NF}' | grep -i '^_*tsr\|tessera')
    [ -z "$ours" ] || echo "asks the host for: $ours"
    cxx=$(nm -D --undefined-only "$1" | awk '{print $NF}' | grep -E '^(_Z|__cxa_(throw|begin|guard|pure|allocate)|__gxx)')
    [ -z "$cxx" ] || echo "asks for C++: ${cxx//$'\n'/ }"
    dynamic=$(readelf -dW "$1")
    grep -qE '\((TEXTREL|RPATH|RUNPATH|SONAME)\)' <<<"$dynamic" &&
        echo "has a text relocation, a path or a name in its dynamic section"
    grep -F '(NEEDED)' <<<"$dynamic" | grep -vE '\[(libc|libm|ld-linux[a-z0-9-]*)\.so\.[0-9]+\]' |
        case ${1##*/} in
        ilp.so) grep -vF '[libglpk.so.' ;;
        mpi.so) grep -vE '\[libmpi[a-z0-9_-]*\.so\.|\[libpthread\.so\.' ;;
        *) cat ;;
        esac |
        sed 's/.*\[/needs: /; s/\]//'
    readelf -lW "$1" | awk '$1 == "GNU_STACK" && $7 ~ /E/ { print "has an executable stack" }'
}

for name in "$@"; do
    [ -f "$dir/$name.so" ] || bad "$dir/$name.so is missing"
done
shopt -s nullglob
for so in "$dir"/*.so "$dir"/asked/*.so; do
    said=$(wrong "$so")
    [ -z "$said" ] || bad "$so $said"
done
offered=$(nm -D --defined-only "$tessera" | awk '{print $NF}' | grep -i '^_*tsr\|tessera')
[ -z "$offered" ] || bad "$tessera exports: $offered"

# It does find each of these: trap NAME WORDS COMPILER [ARGUMENT...], the source on stdin.
trap_one() {
    local name=$1 words=$2 said
    shift 2
    if ! "$@" -fPIC -shared -o "$tmp/$name.so" - 2>"$tmp/log"; then
        bad "$name.so: $(head -1 "$tmp/log")"
        return
    fi
    said=$(wrong "$tmp/$name.so")
    case $said in
    "$words"*) ;;
    *) bad "$name.so: says '$said', '$words' is wanted" ;;
    esac
}
trap_one good '' gcc -x c <<<'const int tsr_plugin_v1 = 1;'
said=$(wrong "$tmp/good.so")
[ -z "$said" ] || bad "a plugin without fault: $said"
trap_one helper 'exports: helper tsr_plugin_v1' gcc -x c <<<'const int tsr_plugin_v1 = 1; int helper(void) { return 1; }'
trap_one none 'exports: ' gcc -x c <<<'static const int tsr_plugin_v1 = 1; const void *at(void) { return &tsr_plugin_v1; }'
trap_one host 'asks the host for: tsr_logf' gcc -x c -fvisibility=hidden \
    <<<'int tsr_logf(void); __attribute__((visibility("default"))) const int tsr_plugin_v1 = 1; int f(void) { return tsr_logf(); }'
trap_one stack 'has an executable stack' gcc -x c -Wl,-z,execstack <<<'const int tsr_plugin_v1 = 1;'
trap_one path 'has a text relocation' gcc -x c -Wl,-rpath,/tmp <<<'const int tsr_plugin_v1 = 1;'
trap_one class 'exports: ' g++ -x c++ <<<'struct A { virtual ~A() {} }; A *make() { return new A; } extern "C" { extern const int tsr_plugin_v1 = 1; }'
trap_one throws 'asks for C++: ' g++ -x c++ -fvisibility=hidden \
    <<<'void f() { throw 1; } extern "C" { __attribute__((visibility("default"))) extern const int tsr_plugin_v1 = 1; }'
exit $failed
