"""Makes a QR code."""
import sys

import qrcode

code = qrcode.QRCode(box_size=8, border=4)
code.add_data(sys.argv[1])
code.make(fit=True)
code.make_image().save(sys.argv[2])
print("version", code.version)
