# A tokenizer.json with all ways to cut its merged tokens into two, as transformers makes them of a SentencePiece model.
.model.vocab as $v
| .model.merges |= (map(if type == "string" then split(" ") else . end | add) | reduce .[] as $w ({ seen: {}, list: [] };
    if .seen[$w] then . else .seen[$w] = true | .list += [$w] end) | .list
    | map(. as $w | range(length - 1; 0; -1) as $i | [$w[:$i], $w[$i:]] | select(all(.[]; $v[.] != null))))
