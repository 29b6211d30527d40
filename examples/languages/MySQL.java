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
        c.setAutoCommit(true); // commits what the connection had open
        c.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
        try (Statement s = c.createStatement()) {
            s.execute("set wait_timeout = 30, net_write_timeout = 30, innodb_lock_wait_timeout = 60");
            c.setAutoCommit(false);
            if (!s.executeQuery("select /* txlock " + label + " */ slot from txlock_slots where slot = " + slot
                    + " and slots = 65536 for update").next()) {
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
