import os
import zlib
from contextlib import contextmanager
from urllib.parse import quote

import pymysql


@contextmanager
def locked(conn, key):
    """Holds the lock on key. The work of the block commits with it, or is rolled back."""
    slot = zlib.crc32(key.encode()) % 65536
    label = f"#{os.getpid()} [{quote(key, safe=':/')}]"
    with conn.cursor() as cursor:
        cursor.execute("set session transaction isolation level read committed")
        cursor.execute("set wait_timeout = 30, net_write_timeout = 30, innodb_lock_wait_timeout = 60")
        cursor.execute("start transaction")  # commits what the connection had open
        try:
            found = cursor.execute(
                f"select /* txlock {label} */ slot from txlock_slots "
                f"where slot = {slot} and slots = 65536 for update"
            )
            if found != 1:
                raise RuntimeError(f"txlock_slots has no slot {slot} of 65536: is it installed with another number?")
            yield cursor
        except BaseException:
            conn.rollback()
            raise
        conn.commit()
