require "erb"
require "pg"
require "zlib"

# Holds the lock on key. The work of the block commits with it, or is rolled back.
def locked(conn, key)
  raise "inside a transaction" unless conn.transaction_status == PG::PQTRANS_IDLE
  slot = Zlib.crc32(key) % 65536
  begin
    conn.exec("begin isolation level read committed")
    conn.exec_params(<<~SQL, ["##{Process.pid} [#{ERB::Util.url_encode(key)}]"])
      select set_config('idle_in_transaction_session_timeout', '30s', true),
        set_config('client_connection_check_interval', '500ms', true), set_config('lock_timeout', '60s', true),
        set_config('application_name', left(left(current_setting('application_name'), 20) || $1::text, 50), true)
    SQL
    rows = conn.exec_params(<<~SQL, [slot])
      select slot from txlock_slots
      where (select pg_advisory_xact_lock('txlock_slots'::regclass::oid::int, $1::int) is not null)
        and slot = $1::int and slots = 65536 for update
    SQL
    raise "txlock_slots has no slot #{slot} of 65536" unless rows.ntuples == 1
    result = yield conn
    conn.exec("commit")
    result
  rescue Exception
    conn.exec("rollback") unless conn.finished? || conn.transaction_status == PG::PQTRANS_IDLE
    raise
  end
end
