"""Small files of the formats that need a library."""

PAGE = """<!DOCTYPE html><html lang="en"><head><title>Gout</title><meta name="date" content="2021-03-04">
<link rel="canonical" href="https://example.org/gout"></head><body><nav><a href="/">Home</a> <a href="/all">All</a></nav>
<article><h1>Gout</h1><p>Gout is a disease of the joints that comes from crystals of uric acid.</p>
<h2>Drugs</h2><p>Either of two drugs is given until the pain is gone.</p>
<table><tr><th>Drug</th><th>Dose</th></tr><tr><td>colchicine</td><td>0.5 mg</td></tr><tr><td>naproxen</td><td>500 mg</td></tr></table>
<p>Text under <a rel="license" href="https://creativecommons.org/licenses/by/4.0/">CC BY 4.0</a>.</p></article>
<footer>All rights of the footer</footer></body></html>"""

MEDQUAD = """<?xml version="1.0" encoding="UTF-8"?>
<Document id="0000007" source="NIDDK" url="https://example.org/gout">
<Focus>Gout</Focus>
<FocusAnnotations><Category>Disease</Category><Synonyms><Synonym>podagra</Synonym></Synonyms></FocusAnnotations>
<QAPairs>
  <QAPair pid="1"><Question qid="0000007-1" qtype="information">What is gout ?</Question>
    <Answer>A disease of
            the joints.   - It hurts.


            It comes at night.</Answer></QAPair>
  <QAPair pid="2"><Question qid="0000007-2" qtype="treatment">How is it treated ?</Question><Answer> </Answer></QAPair>
  <QAPair pid="3"><Question qid="0000007-3" qtype="symptoms">What are its signs ?</Question><Answer>A red toe.</Answer></QAPair>
</QAPairs>
</Document>
"""


def pdf(*pages: str | None, title: str = "Gout", language: str = "en") -> bytes:
    """A PDF with a line of text on each page; None: a page whose content is not there."""
    objects = [f"<< /Type /Catalog /Pages 2 0 R /Lang ({language}) >>", "", f"<< /Title ({title}) >>"]
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    kids = []
    for text in pages:
        kids.append(f"{len(objects) + 1} 0 R")
        content = f"BT /F 12 Tf 72 700 Td ({text}) Tj ET" if text is not None else "BT /F 12 Tf (cut"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {len(objects) + 2} 0 R "
            "/Resources << /Font << /F 4 0 R >> >> >>"
        )
        coded = "/Filter /FlateDecode " if text is None else ""
        objects.append(f"<< {coded}/Length {len(content)} >>\nstream\n{content}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    return (
        out
        + (
            head + f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 3 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
        ).encode()
    )
