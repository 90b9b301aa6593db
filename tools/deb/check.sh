# shellcheck shell=bash
# tools/deb/check.sh - the packages in a bare Debian 12: installed, used, removed.

within() { chroot "$CHECK" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"; }

# expect WHAT COMMAND...: one check, in the root
expect() {
    local what=$1
    shift
    if within "$@" >"$OUT/check.log" 2>&1; then
        say "ok: $what"
    else
        tail -n 20 "$OUT/check.log" >&2
        die "$what"
    fi
}

leave_root() {
    umount "$CHECK/proc" 2>/dev/null || true
    mountpoint -q "$CHECK/proc" || rm -rf --one-file-system "$CHECK"
}

install_debs() { expect "$1 is installed with what it needs" apt-get install -q -y --no-install-recommends "/debs/$2"; }

check_packages() {
    local main=$1 glpk=$2
    [ "$(id -u)" = 0 ] || die "tools/package --check needs root: debootstrap and chroot do"
    CHECK=$(mktemp -d "${TMPDIR:-/tmp}/tessera-package-XXXXXX")
    trap leave_root EXIT
    say "check: a bare Debian 12 in $CHECK"
    debootstrap --variant=minbase bookworm "$CHECK" >"$OUT/debootstrap.log" 2>&1 ||
        { tail -n 20 "$OUT/debootstrap.log" >&2; die "debootstrap failed"; }
    mount -t proc proc "$CHECK/proc" || die "/proc cannot be mounted in $CHECK, and the program reads it"
    mkdir "$CHECK/debs"
    cp "$main" "$glpk" "$CHECK/debs/"
    cp /etc/resolv.conf /etc/hosts "$CHECK/etc/"
    expect "the package lists are read" apt-get -q update

    install_debs tessera "${main##*/}"
    expect "the program runs" tessera --version
    expect "the planner's solver exact is there" tessera inspect solver:exact
    expect "inspect names the package of the solver ilp" sh -c \
        'tessera inspect plugins | grep -qx "not installed: solver ilp; install the Debian package tessera-glpk"'
    expect "the demo model answers" tessera generate @demo --prompt "It was" --max-tokens 4 --greedy
    expect "the installed quickstart is a good job" tessera config check /usr/share/tessera/quickstart.yaml
    expect "a man page for every verb" sh -c \
        'tessera help | sed -n "/^usage/,/^options/s/^  \([a-z][a-z-]*\) .*/\1/p" | while read -r verb; do
            test -s /usr/share/man/man1/tessera-"$verb".1.gz || exit 1; done'
    expect "completions for bash" bash -c '. /usr/share/bash-completion/completions/tessera.bash && complete -p tessera'
    expect "the header of the SDK" test -s /usr/include/tessera/plugin.h
    expect "no file was changed since" sh -c 'test -z "$(dpkg --verify tessera)"'

    install_debs tessera-glpk "${glpk##*/}"
    expect "the solver ilp is there" tessera inspect solver:ilp
    expect "and inspect misses it no more" sh -c '! tessera inspect plugins | grep "solver ilp;"'
    expect "tessera-glpk is removed" dpkg --purge tessera-glpk
    expect "its plugin is gone" sh -c '! test -e /usr/lib/tessera/ilp.so'
    expect "tessera is removed" dpkg --purge tessera
    expect "nothing of both is left" sh -c 'test -z "$(find / -xdev -path /proc -prune -o -path /debs -prune -o -iname "*tessera*" -print)"'
    say "check: all of it holds"
}
