# shellcheck shell=bash
# tests/e2e/prefix.sh - `meson install` from tests that run at the same time: what a developer installed
# from this build folder can still be uninstalled afterwards.
BUILD=$(dirname "$TESSERA")
INSTALL_LOG=$BUILD/meson-logs/install-log.txt

# alone COMMAND...: with the build folder's install log for itself; puts the old one back.
alone() {
    exec 9>"$BUILD/meson-logs/install.lock"
    flock 9
    rm -f "$WORK/install-log"
    [ ! -e "$INSTALL_LOG" ] || mv "$INSTALL_LOG" "$WORK/install-log"
    local rc=0
    "$@" >"$WORK/log" 2>&1 || rc=$?
    rm -f "$INSTALL_LOG"
    [ ! -e "$WORK/install-log" ] || mv "$WORK/install-log" "$INSTALL_LOG"
    exec 9>&-
    [ $rc = 0 ] || cat "$WORK/log"
    return $rc
}

install_logged() {
    meson install -C "$BUILD" --no-rebuild --destdir "$1" && cp "$INSTALL_LOG" "$WORK/installed"
}

uninstall_logged() { cp "$WORK/installed" "$INSTALL_LOG" && ninja -C "$BUILD" uninstall; }

# install_into FOLDER: as a packager does; leaves the program's path in TESSERA and its prefix in
# `prefix`.
install_into() {
    alone install_logged "$1"
    TESSERA=$(find "$1" -type f -name tessera -perm -u+x)
    # shellcheck disable=SC2034 # used by the scripts
    prefix=$(dirname "$(dirname "$TESSERA")")
}

# uninstall_last: what install_into did last
uninstall_last() { alone uninstall_logged; }
