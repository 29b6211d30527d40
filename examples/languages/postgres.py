import os
import zlib
from contextlib import contextmanager
from urllib.parse import quote

import psycopg


@contextmanager
def locked(conn, key):
    """Holds the lock on key. The work of the block commits with it, or is rolled back."""
    conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # an error inside a transaction
    slot = zlib.crc32(key.encode()) % 65536
    with conn.transaction():
        conn.execute(
            """select set_config('idle_in_transaction_session_timeout', '30s', true),
            set_config('client_connection_check_interval', '500ms', true), set_config('lock_timeout', '60s', true),
            set_config('application_name', left(left(current_setting('application_name'), 20) || %s, 50), true)""",
            [f"#{os.getpid()} [{quote(key, safe=':/')}]"],
        )
        row = conn.execute(
            """select slot from txlock_slots
            where (select pg_advisory_xact_lock('txlock_slots'::regclass::oid::int, %(slot)s) is not null)
            and slot = %(slot)s and slots = 65536 for update""",
            {"slot": slot},
        ).fetchone()
        if row is None:
            raise RuntimeError(f"txlock_slots has no slot {slot} of 65536: is it installed with another number?")
        yield conn
