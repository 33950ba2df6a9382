"""Workbooks that openpyxl does not write: XML by hand, and the old kinds."""

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def xml_row(number: int, *texts: str) -> str:
    """A row of text cells from column A."""
    cells = "".join(
        f'<c r="{chr(65 + column)}{number}" t="inlineStr"><is><t>{text}</t></is></c>'
        for column, text in enumerate(texts)
    )
    return f'<row r="{number}">{cells}</row>'


def xml_workbook(
    path: Path, rows: str, *, before: str = "", after: str = "", parts: Mapping[str, str | bytes] | None = None
) -> Path:
    """A workbook of one sheet, "index", that holds just this XML; `parts` come in addition or instead."""
    sheet = f'<worksheet xmlns="{_MAIN}">{before}<sheetData>{rows}</sheetData>{after}</worksheet>'
    files: dict[str, str | bytes] = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" '
        'ContentType="application/xml"/><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/><Override '
        'PartName="/xl/worksheets/sheet1.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/><Override '
        'PartName="/xl/styles.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.styles+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="rId1" '
        f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets><sheet name="index" sheetId="1" '
        'r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="rId1" '
        f'Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="rId2" Type="{_OFFICE}/styles" '
        'Target="styles.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": sheet,
        "xl/styles.xml": f'<styleSheet xmlns="{_MAIN}"><fills><fill/></fills></styleSheet>',
    }
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, content in {**files, **(parts or {})}.items():
            archive.writestr(name, content)
    return path


def xlsb_workbook(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    """A binary workbook ([MS-XLSB]) of one sheet, "index", of text cells."""
    book = [_record(131), _record(143), _record(156, struct.pack("<II", 0, 1) + _text("rId1") + _text("index"))]
    cells = [
        _record(0, struct.pack("<I", number) + bytes(13))
        + b"".join(_record(6, struct.pack("<II", column, 0) + _text(text)) for column, text in enumerate(row))
        for number, row in enumerate(rows)
    ]
    size = struct.pack("<IIII", 0, len(rows) - 1, 0, len(rows[0]) - 1)
    with ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.bin", b"".join([*book, _record(144), _record(132)]))
        archive.writestr(
            "xl/_rels/workbook.bin.rels",
            f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="rId1" Type="{_OFFICE}/worksheet" '
            'Target="worksheets/sheet1.bin"/></Relationships>',
        )
        archive.writestr(
            "xl/worksheets/sheet1.bin",
            b"".join([_record(129), _record(148, size), _record(145), *cells, _record(146), _record(130)]),
        )
    return path


def xls_workbook(path: Path) -> Path:
    """A workbook of 1997, as xlwt 1.3.0 wrote it: sheet "index", rows ("007", 12, "x") and ("NA", "i", "y")."""
    path.write_bytes(zlib.decompress(base64.b85decode(_XLS)))
    return path


def _record(kind: int, data: bytes = b"") -> bytes:
    head = bytes([kind]) if kind < 128 else bytes([kind & 127 | 128, kind >> 7])
    length, left = b"", len(data)
    while left > 127:
        length, left = length + bytes([left & 127 | 128]), left >> 7
    return head + length + bytes([left]) + data


def _text(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


_XLS = (
    "c-"
    "rk)O=uHA6#izjn?IU#Q&XW8N+?*h_E7auFYQ`EdoolniU>7r_7ECVi9NI)v|4i%1W$^WLN8vbUi?81dh;Mu^dKlgqDN1Hf`>Nio430$)f^JgqB"
    "7qyZ{EC_Z|Cj4H?u!4R}<x>d)*cMgb@T#bs`AX*#wn{-"
    "!MV_jw4mS4pVUy{wYMl6v&`~$FUb78ABQG3N+l+pOFMUP&tLONY51P)F$E}`;ZaRhhdTex5yGl7kkyga*E{^mUnpM6P5?qa+T#UjV+6lShdpq`"
    "@Jkaq4jcK9P+#mnDdq`d(esJGK()>6Yf|8qs3e%|95uu=xtaA#cj+k*u_k~j3fnc8DE_g@Wo%LPgBaixpo1vf7@seHLzdTbYKC_X-"
    "@DGVt5yjJqB`xtUb4eA>LENY(i#YDt|60>)fn;MrS2U;|B+aC@tnFf77F+<fzO?<yOs0+uX3UW1RABB(rE|J;8}@(j;rQKfgLMIc`m`Wr3%4H~"
    "sC>PdK<F8AOhAPoO6InX#MYWj^aR*1K6I$$6^##ydUb@FI`7!o7Vo&pyU$Ye${Fll0Q3qYryZAFW-"
    "auZ&gBCs*EBOX#JCP?q@eSj2!B5I1i~JhJ>+cpJofmR-MW7Gcfwe0RJjTRYYfWi`RlZOOYMYAwyXSCTCnum!W_{kWh-*}DYxdThaL-"
    "D7JF*c!79Z@e3sV67$DGKeEu2ky(Ew8{NI6bcFo3JMAe3JMBMLGX*M`x>vi-x>Vc8S?(?tW&9~-"
    "z5Jnj$ww5S^6+NgaXw?%(s+3TVV+QT%t*i|G!Y;IL%(fG$z@P>6Y`CKJ-NW^)yX1f8P>nb^dBAe*WS4zXMn}%SZ"
)
