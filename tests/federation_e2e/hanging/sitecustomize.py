"""Imported by every Python that starts with this folder on its path: a site's runner then hangs at a step of a sum.

`HANG_AT` names the step's function in `Member`, `HUNG` the file that says that it hangs.
"""

import os
import sys

if "fedrel.deployment.site_runner" in sys.orig_argv:
    import time
    from pathlib import Path

    from fedrel.federation.secure_sum import Member

    def hang(*_: object) -> None:
        Path(os.environ["HUNG"]).touch()
        time.sleep(10**6)

    setattr(Member, os.environ["HANG_AT"], hang)
