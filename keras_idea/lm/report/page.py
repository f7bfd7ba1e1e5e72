"""A report as one HTML page that needs nothing else: no network, no other file."""

import base64
import html
import io
from collections.abc import Sequence

from keras_idea.lm.report.picture import draw_side_by_side
from keras_idea.lm.report.run_record import RunRecord
from keras_idea.lm.report.table import COLUMNS, LEGEND, cells
from keras_idea.lm.report.widths import curves_of

#: The first line of every report, by which its file is known as one.
MARK = "<!DOCTYPE html><!-- keras-idea report -->"

# Nothing may be loaded; pictures are in the page itself.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1f2933; margin: 0 auto;
       max-width: 1500px; padding: 24px; }
h1 { font-size: 26px; margin: 0; } h2 { font-size: 20px; margin: 36px 0 10px; }
h3 { font-size: 17px; margin: 0 0 8px; } p, .legend { color: #52606d; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid #e4e7eb;
         text-align: right; vertical-align: top; }
th { color: #52606d; font-weight: 600; } .text { text-align: left; }
.differs td { background: #fff3d6; } .wide { overflow-x: auto; }
.runs { display: grid; gap: 28px;
        grid-template-columns: repeat(auto-fit, minmax(min(560px, 100%), 1fr)); }
.run { border: 1px solid #e4e7eb; border-radius: 8px; padding: 18px; min-width: 0; }
.curves { max-width: 1100px; }
img { max-width: 100%; height: auto; display: block; }
pre { background: #f5f7fa; padding: 12px; overflow-x: auto; white-space: pre-wrap;
      overflow-wrap: anywhere; }
summary { cursor: pointer; margin: 10px 0; color: #0b7285; }
"""


def report_page(records: Sequence[RunRecord], title: str) -> str:
    """The HTML of a report of one run or several."""
    several = len(records) > 1
    parts = [
        "<h2>Results</h2>",
        _table(
            ["run", *(header for header, _, _ in COLUMNS)],
            [[record.name, *cells(row)] for record in records for row in record.rows],
            texts=2,
        ),
        f'<p class="legend">{html.escape(LEGEND)}</p>',
    ]
    if several:
        widths = any(len(curves_of(record)) > 1 for record in records)
        heading = "The trained models" if widths else "The pruned models"
        parts += [f"<h2>{heading}</h2>", _curves(records)]
    parts += ["<h2>Runs</h2>", '<div class="runs">', *map(_run, records), "</div>"]
    parts += ["<h2>Settings</h2>", _settings(records, several)]
    return "\n".join(
        [
            MARK,
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # Else a browser asks the server for one.
            '<link rel="icon" href="data:,">',
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{html.escape(title)}</h1>",
            *parts,
            "</body></html>\n",
        ]
    )


def _curves(records: Sequence[RunRecord]) -> str:
    picture = io.BytesIO()
    runs = [each for record in records for each in curves_of(record)]
    draw_side_by_side(picture, runs)
    names = ", ".join(record.name for record in records)
    image = _image(picture.getvalue(), f"Loss and width of {names}")
    note = "Lines: training loss, smoothed; dots: held-out text."
    return f'<div class="curves">{image}</div><p class="legend">{note}</p>'


def _run(record: RunRecord) -> str:
    facts = [[key, str(value)] for key, value in record.facts.items()]
    return "\n".join(
        [
            f'<div class="run"><h3>{html.escape(record.name)}</h3>',
            _image(record.picture, f"Rate, width, loss and neurons of {record.name}"),
            "<details open><summary>Where and on what</summary>",
            _table(["", ""], facts, texts=2),
            "</details><details><summary>What the narrow model writes</summary>",
            f"<pre>{html.escape(record.sample)}</pre></details></div>",
        ]
    )


def _settings(records: Sequence[RunRecord], several: bool) -> str:
    keys = dict.fromkeys(key for record in records for key in record.settings)
    rows, differing = [], []
    for key in keys:
        values = [str(record.settings.get(key, "-")) for record in records]
        rows.append([key, *values])
        differing.append(len(set(values)) > 1)
    header = ["", *(record.name for record in records)]
    note = "<p>Coloured where the runs differ.</p>" if several else ""
    return note + _table(header, rows, texts=len(header), marked=differing)


def _table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    texts: int,
    marked: Sequence[bool] = (),
) -> str:
    """A table whose first `texts` columns are texts, the others numbers."""

    def line(tag: str, values: Sequence[str]) -> str:
        classes = [' class="text"' if i < texts else "" for i in range(len(values))]
        pairs = zip(classes, map(html.escape, values), strict=True)
        return "".join(f"<{tag}{kind}>{value}</{tag}>" for kind, value in pairs)

    differs = ' class="differs"'
    marks = [*marked, *[False] * (len(rows) - len(marked))]
    body = [
        f"<tr{differs if mark else ''}>{line('td', row)}</tr>"
        for row, mark in zip(rows, marks, strict=True)
    ]
    head = f"<thead><tr>{line('th', header)}</tr></thead>" if any(header) else ""
    lines = "\n".join(body)
    return f'<div class="wide"><table>{head}<tbody>\n{lines}\n</tbody></table></div>'


def _image(png: bytes, alt: str) -> str:
    data = base64.b64encode(png).decode("ascii")
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'
