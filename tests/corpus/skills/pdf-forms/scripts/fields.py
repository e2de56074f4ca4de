"""Lists the fields of a form."""
import sys

from pypdf import PdfReader

for name, field in sorted(PdfReader(sys.argv[1]).get_fields().items()):
    print(f"{name}: {field.get('/V', '')!s}")
