# tokenizer.jq --argjson size N -n: a tokenizer of N tokens: three special ones, a token for each byte, and tokens that texts do
# not have, so that every id is another text.
def printable: (. >= 33 and . <= 126) or (. >= 161 and . <= 172) or (. >= 174);
def bytes: [range(256) | select(printable)] as $own | [range(256) | select(printable | not)] as $other |
    ($own | map({key: ([.] | implode), value: (. + 3)})) +
    ($other | to_entries | map({key: ([256 + .key] | implode), value: (.value + 3)})) | from_entries;
def token($id; $special): {id: $id, content: (if $special then ["<pad>", "<s>", "</s>"][$id] else "<t\($id)>" end),
    single_word: false, lstrip: false, rstrip: false, normalized: false, special: $special};
{
    version: "1.0", truncation: null, padding: null,
    added_tokens: ([range(3) | token(.; true)] + [range(259; $size) | token(.; false)]),
    normalizer: null,
    pre_tokenizer: {type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true},
    post_processor: null,
    decoder: {type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true},
    model: {type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
        fuse_unk: false, byte_fallback: false, ignore_merges: false,
        vocab: ({"<pad>": 0, "<s>": 1, "</s>": 2} + bytes), merges: []}
}
