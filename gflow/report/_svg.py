"""What matplotlib draws, made part of a page: colours by CSS variables, fonts of the page, ids of its own, a name."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET

# Colours that stand for a variable of the page's style sheet; nothing else in a figure has them.
_VARIABLES = ("ink", "muted", "grid", "wrong", "s1", "s2", "s3", "s4", "s5", "s6")
INK, MUTED, GRID, WRONG, *_SERIES = (f"#0102{number:02x}" for number in range(len(_VARIABLES)))
SERIES = tuple(_SERIES)

_SPACE = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_SIGNS = {
    "o": '<circle cx="14" cy="6" r="4"/>',
    "s": '<path d="M10 2h8v8h-8z"/>',
    "^": '<path d="M14 1.5l4.5 8.5h-9z"/>',
    "D": '<path d="M14 1l5 5-5 5-5-5z"/>',
    "v": '<path d="M14 10.5l4.5-8.5h-9z"/>',
    "P": '<path d="M12.5 2h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z"/>',
}
_STROKES = {"theory": "", "control": "5 3", "other": "1.5 2"}


@dataclasses.dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    label: str
    colour: str
    marker: str | None
    kind: str  # "measured", "theory", "control", "other" or "band"
    shade: float = 1.0  # opacity of a band

    @property
    def svg(self) -> str:
        """The sign of the curve; its label says the rest."""
        colour = variables(self.colour)
        sign = _SIGNS.get(self.marker or "", "")
        if self.kind == "band":
            sign = f'<path d="M2 1h24v10h-24z" opacity="{self.shade:.2f}"/>'
        elif self.kind in _STROKES:
            dash = f'stroke-dasharray="{_STROKES[self.kind]}" ' if _STROKES[self.kind] else ""
            sign = f'<path d="M1 6h26" {dash}style="stroke: {colour}; stroke-width: 2"/>{sign}'
        return f'<svg class="key" viewBox="0 0 28 12" aria-hidden="true" style="fill: {colour}">{sign}</svg>'


def variables(style: str) -> str:
    """A style with its stand-in colours replaced."""
    return re.sub(r"#0102([0-9a-f]{2})", lambda found: f"var(--{_VARIABLES[int(found[1], 16)]})", style)


def embed(document: str, name: str, label: str) -> str:
    """The `<svg>` element of an SVG document, as HTML takes it: named `label`, every id beginning with `name`."""
    root = ET.fromstring(document)
    for parent in list(root.iter()):
        for child in list(parent):
            # metadata is of no use here; the style would hold for the whole page, which has its own
            if child.tag in (f"{_SPACE}metadata", f"{_SPACE}style"):
                parent.remove(child)
    used = {_target(element) for element in root.iter()}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SPACE)
        element.text = element.text if element.text and element.text.strip() else None
        element.tail = element.tail if element.tail and element.tail.strip() else None
        _rename(element, name, used)
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib.clear()
    root.attrib.update({"class": "plot", "viewBox": f"0 0 {width} {height}", "role": "img"})
    root.attrib["aria-labelledby"] = f"{name}-title"
    title = ET.Element("title", {"id": f"{name}-title"})
    title.text = label
    root.insert(0, title)
    return ET.tostring(root, encoding="unicode")


def _target(element: ET.Element) -> str | None:
    """The id that an element refers to."""
    if _HREF in element.attrib:
        return element.attrib[_HREF][1:]
    found = re.fullmatch(r"url\(#(.*)\)", element.attrib.get("clip-path", ""))
    return found[1] if found else None


def _rename(element: ET.Element, name: str, used: set[str | None]) -> None:
    """Ids that are referred to get the figure's name, the others go; references follow."""
    given = element.attrib
    identifier = given.pop("id", None)
    if identifier in used and identifier is not None:
        given["id"] = f"{name}-{identifier}"
    if _HREF in given:
        given["href"] = f"#{name}-{given.pop(_HREF)[1:]}"
    if "clip-path" in given:
        given["clip-path"] = given["clip-path"].replace("#", f"#{name}-")
    if "style" in given:
        # quoted names of fonts hold no semicolon
        kept = [part for part in given["style"].split(";") if not part.strip().startswith("font-family")]
        given["style"] = variables(";".join(kept))
    if "d" in given:
        given["d"] = " ".join(given["d"].split())
    if given.get("transform", "").startswith("rotate(-0 "):
        del given["transform"]
