"""Writes a presentation as one file of XML (flat OpenDocument)."""
import sys
from xml.sax.saxutils import escape

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"
 xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"
 xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"
 xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"
 office:version="1.2" office:mimetype="application/vnd.oasis.opendocument.presentation">
<office:automatic-styles><style:page-layout style:name="wide"><style:page-layout-properties
 fo:page-width="32cm" fo:page-height="18cm"/></style:page-layout></office:automatic-styles>
<office:master-styles><style:master-page style:name="plain" style:page-layout-name="wide"/></office:master-styles>
<office:body><office:presentation>
"""
SLIDE = """<draw:page draw:name="page{number}" draw:master-page-name="plain"><draw:frame svg:x="2cm" svg:y="2cm"
 svg:width="28cm" svg:height="4cm"><draw:text-box><text:p>{title}</text:p></draw:text-box></draw:frame></draw:page>
"""
with open(sys.argv[1], "w", encoding="utf-8") as deck:
    deck.write(HEAD)
    for number, title in enumerate(sys.argv[2:], 1):
        deck.write(SLIDE.format(number=number, title=escape(title)))
    deck.write("</office:presentation></office:body></office:document>\n")
