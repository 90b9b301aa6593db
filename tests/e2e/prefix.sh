# shellcheck shell=bash
# tests/e2e/prefix.sh - `meson install` from a test: what a developer installed from the same build
# folder can still be uninstalled afterwards.
BUILD=$(dirname "$TESSERA")
INSTALL_LOG=$BUILD/meson-logs/install-log.txt
[ ! -e "$INSTALL_LOG" ] || cp -p "$INSTALL_LOG" "$WORK/install-log"
prefix_done() {
    rm -f "$INSTALL_LOG"
    [ ! -e "$WORK/install-log" ] || cp -p "$WORK/install-log" "$INSTALL_LOG"
    rm -rf "$WORK"
}
trap prefix_done EXIT

# install_into FOLDER: as a packager does; leaves the program's path in TESSERA and its prefix in
# `prefix`.
install_into() {
    meson install -C "$BUILD" --no-rebuild --destdir "$1" >"$WORK/log" 2>&1 ||
        { cat "$WORK/log"; exit 1; }
    TESSERA=$(find "$1" -type f -name tessera -perm -u+x)
    # shellcheck disable=SC2034 # used by the scripts
    prefix=$(dirname "$(dirname "$TESSERA")")
}
