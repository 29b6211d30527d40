require "erb"
require "mysql2"
require "zlib"

# Holds the lock on key. The work of the block commits with it, or is rolled back.
def locked(conn, key)
  slot = Zlib.crc32(key) % 65536
  label = "##{Process.pid} [#{ERB::Util.url_encode(key)}]"
  conn.query("set session transaction isolation level read committed")
  conn.query("set wait_timeout = 30, net_write_timeout = 30, innodb_lock_wait_timeout = 60")
  conn.query("start transaction") # commits what the connection had open
  begin
    rows = conn.query("select /* txlock #{label} */ slot from txlock_slots " \
      "where slot = #{slot} and slots = 65536 for update")
    raise "txlock_slots has no slot #{slot} of 65536" unless rows.count == 1
    result = yield conn
  rescue Exception
    conn.query("rollback") unless conn.closed?
    raise
  end
  conn.query("commit")
  result
end
