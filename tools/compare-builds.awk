# tools/compare-builds.awk - drops from a report, one tag a line, what compare-builds.jq drops from results.json: whole rows of
# tables by their first cell, columns by their heading, and the charts of speeds.
function text(s) { gsub(/<[^>]*>/, "", s); return s }
function measured(s) {
    return s ~ /^(seconds|peak_memory_bytes|tokens_per_second|emulated_tokens_per_second|overruns|overrun_ms)$/ || s ~ /_s$/ ||
        s ~ /^(prefill|decode) ?tokens\/s$/
}
/<table/ { table[++depth] = ++tables; dropping = 0 }
/<tr|<\/table>/ { dropping = 0 }
/<\/table>/ { depth-- }
/<tr/ { column[depth] = 0; row_dropped[depth] = 0 }
/<th/ { heading[table[depth], ++column[depth]] = measured(text($0)) }
/<td/ {
    if (++column[depth] == 1) row_dropped[depth] = measured(text($0))
    dropping = row_dropped[depth] || heading[table[depth], column[depth]]
}
/<figcaption>.*(tokens per second|ms)/ { chart = 1 }
/<\/figure>/ { chart = 0 }
!dropping && !chart { sub(/; (prefill|decode) x[0-9][^<]*/, ""); print }
