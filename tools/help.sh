# shellcheck shell=bash
# tools/help.sh - a tool that is asked for its help prints the comment that opens it.  Source it before options
# are read.

case ${1:-} in
-h | --help)
    sed -n '2,/^[^#]/{/^# shellcheck/d;/^#/s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
esac
