"""What an error of the operating system says about a disk.

=========================  ===============================================  ==============================================
errno                      what it says                                     what follows
=========================  ===============================================  ==============================================
ENOSPC, EDQUOT             there is no room; nothing is lost by it          the request is refused, and tried again later
EMFILE, ENFILE, ENOMEM     this process, or the system, has too many        the same
                           files open, or no memory
ENOENT, ENOTDIR            a file is not there: deleted, or never made      the log without its file is offline, if it still
                                                                            needs it; its disk is not at fault. Where the log
                                                                            directory itself is not there, it is offline
anything else (EIO ...)    the disk does not do what it is asked to         its log directory is offline
=========================  ===============================================  ==============================================
"""

from __future__ import annotations

import errno
from typing import Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
SHORTAGE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
PASSING: Final = FULL | SHORTAGE
"""What may work a moment later, with nothing lost meanwhile."""
ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


def is_disk_at_fault(error: OSError) -> bool:
    """True when nothing on this disk can be trusted from now on."""
    return error.errno not in PASSING and error.errno not in ABSENT
