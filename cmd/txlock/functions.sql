CREATE OR REPLACE FUNCTION txlock_slot(key text) RETURNS integer LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    crc bigint := 4294967295;
    bytes bytea := convert_to(key, 'UTF8');
BEGIN
    FOR i IN 0 .. length(bytes) - 1 LOOP
        crc := crc # get_byte(bytes, i);
        FOR bit IN 1 .. 8 LOOP
            crc := (crc >> 1) # (crc & 1) * 3988292384;
        END LOOP;
    END LOOP;
    RETURN (crc # 4294967295) % 65536;
END $$;

-- Locks key until the end of the transaction. It is a statement of its own, inside BEGIN: what the same statement reads
-- besides is older than the lock, and without BEGIN the lock is gone when the statement ends.
CREATE OR REPLACE FUNCTION txlock_lock(key text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    number integer := txlock_slot(key);
    shown text := CASE WHEN key ~ '^[A-Za-z0-9_.:/-]+$' THEN key ELSE '~' || number END;
BEGIN
    IF key IS NULL OR key = '' THEN
        RAISE 'txlock: the key is empty' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE 'txlock: lock %: the transaction must be READ COMMITTED: its snapshot is older than the lock', key
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    PERFORM set_config('idle_in_transaction_session_timeout', '30s', true),
        set_config('client_connection_check_interval', '500ms', true),
        set_config('application_name',
            left(left(current_setting('application_name'), 20) || '#0 [' || shown || ']', 50), true);
    PERFORM pg_advisory_xact_lock('txlock_slots'::regclass::oid::int, number);
    PERFORM FROM txlock_slots WHERE slot = number AND slots = 65536 FOR UPDATE;
    IF NOT FOUND THEN
        RAISE 'txlock: lock %: txlock_slots has no slot % of 65536: was it installed with another number?', key, number
            USING ERRCODE = 'no_data_found';
    END IF;
END $$;
