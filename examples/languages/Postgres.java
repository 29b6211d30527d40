import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.util.zip.CRC32;

class Locked {
    interface Work { void run(Connection c) throws Exception; }

    /** Holds the lock on key. Work commits with it, or is rolled back. */
    static void locked(Connection c, String key, Work work) throws Exception {
        CRC32 crc = new CRC32();
        crc.update(key.getBytes(StandardCharsets.UTF_8));
        int slot = (int) (crc.getValue() % 65536);
        String label = "#" + ProcessHandle.current().pid() + " ["
            + URLEncoder.encode(key, StandardCharsets.UTF_8).replace("+", "%20").replace("*", "%2A") + "]";
        c.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED); // an error inside a transaction
        c.setAutoCommit(false);
        try (PreparedStatement set = c.prepareStatement(
                "select set_config('idle_in_transaction_session_timeout', '30s', true),"
                + " set_config('client_connection_check_interval', '500ms', true),"
                + " set_config('lock_timeout', '60s', true), set_config('application_name',"
                + " left(left(current_setting('application_name'), 20) || ?, 50), true)");
            PreparedStatement lock = c.prepareStatement(
                "select slot from txlock_slots where (select pg_advisory_xact_lock("
                + "'txlock_slots'::regclass::oid::int, ?) is not null) and slot = ? and slots = 65536 for update")) {
            set.setString(1, label);
            set.execute();
            lock.setInt(1, slot);
            lock.setInt(2, slot);
            if (!lock.executeQuery().next()) {
                throw new SQLException("txlock_slots has no slot " + slot + " of 65536");
            }
            work.run(c);
            c.commit();
        } catch (Throwable e) {
            c.rollback();
            throw e;
        } finally {
            c.setAutoCommit(true);
        }
    }
}
