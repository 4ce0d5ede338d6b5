"""A list of `shortlist` as CTranslate2's vmap.txt: the very same candidates of every source.

A line of it is a source piece, a tab, and pieces that an output may then be written in, blanks between them; where
nothing stands before the tab, they always may. CTranslate2 adds the unknown piece, the begin and the end by itself, of
which ours has all but the begin, and takes a batch's candidates together, where ours keeps every sentence to its own."""

import safetensors.numpy


def write(shortlist, pieces, file):
    """`shortlist`: the file that our program wrote. `pieces`: text by id, of both languages."""
    for piece in pieces:
        if set(piece) & set(" \t\r\n"):
            raise ValueError(f"a piece that vmap.txt cannot hold: {piece!r}")
    tensors = safetensors.numpy.load_file(shortlist)
    always, starts, translations = (tensors[name].tolist() for name in ("always", "starts", "translations"))
    lines = ["\t" + " ".join(pieces[i] for i in always)]
    for source, (first, end) in enumerate(zip(starts, starts[1:])):
        if first < end:
            lines.append(pieces[source] + "\t" + " ".join(pieces[i] for i in translations[first:end]))
    partial = file.with_name(file.name + ".partial")
    partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    partial.replace(file)
