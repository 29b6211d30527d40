package kinds

import (
	"strings"

	"github.com/txlock/txlock/dialects"
)

// claimsOf reads the clock behind the lock of a row. A statement sees a row, or what Sweep has left
// of it, and never neither. Take makes a new row ended, with token 0, in front. Its token then is
// above what Sweep has deleted before, however often the row has come and gone meanwhile.
func claimsOf(table string) dialects.ClaimSQL {
	line := func(number, from string) string {
		return "select concat_ws(' ', " + number + ", c.token, c.secret, " + micros("c.since") + ", " +
			micros("c.until") + ", " + micros("c.until") + " - " + micros("NOW") + ", encode(c.claim, 'hex'), " +
			"encode(convert_to(c.holder, 'UTF8'), 'hex'), encode(convert_to(coalesce(c.name, ''), 'UTF8'), 'hex')) " +
			"from " + from
	}
	fill := func(text string) string {
		return strings.NewReplacer("NOW", "clock_timestamp()", "SWEPT", "decode(repeat('0', 64), 'hex')",
			"MICROSECONDS", "float8 * interval '1 microsecond'", "{}", table).Replace(text)
	}
	read := fill(line("1", "{} c where c.claim = $1::bytea"))
	return dialects.ClaimSQL{
		Table: table,
		Read:  read,
		Keep:  read, // at READ COMMITTED: LockTx refuses other transactions
		List:  fill(line("1", "{} c where c.until > NOW order by c.until limit 10000")),
		End:   fill("update {} set until = " + at("$2") + " where claim = $1::bytea and secret = $3::bigint"),
		Take: fill("insert into {} (claim, holder, token, secret, since, until) select $1::bytea, '', 0, 0, " +
			"to_timestamp(0), to_timestamp(0) from {} swept where swept.claim = SWEPT and not exists (select from {} " +
			"where claim = $1::bytea) on conflict do nothing;\n" +
			"with mine as materialized (select claim from {} where claim = $1::bytea and (until <= NOW or holder = " +
			"$2::text) for update skip locked), clock as materialized (select NOW as now from mine), " +
			"taken as (update {} c set holder = $2::text, name = nullif($4::text, ''), until = now + " +
			"$5::MICROSECONDS, " +
			"token = case c.token when 0 then swept.token else c.token end + (c.until <= now)::int, " +
			"secret = case when c.until > now then c.secret else $3::bigint end, " +
			"since = case when c.until > now then c.since else now end " +
			"from clock, {} swept where c.claim = $1::bytea and swept.claim = SWEPT returning c.*) " +
			line("1", "taken c") + " union all " + line("0", "{} c where c.claim = $1::bytea and not exists "+
			"(select from taken)")),
		Look: fill("with asked as materialized (select n, decode(a ->> 0, 'hex') claim, convert_from(decode(a ->> 1, " +
			"'hex'), 'UTF8') holder from json_array_elements($1::json) with ordinality list (a, n)), " +
			"free as materialized (select n from asked join {} c using (claim) where c.until <= NOW or c.holder = " +
			"asked.holder for update of c skip locked) select n from asked left join {} c using (claim) " +
			"where c.claim is null or n in (select n from free)"),
		Sweep: fill("with swept as materialized (select claim from {} where claim = SWEPT for update skip locked), " +
			"old as (select claim, until, token from {} where until >= " + at("$1") + " and until < now() - " +
			"$2::MICROSECONDS and claim <> SWEPT and exists (select from swept) order by until limit $3::bigint for " +
			"update skip locked), gone as (delete from {} c using old where c.claim = old.claim), " +
			"kept as (update {} c set token = greatest(c.token, (select max(token) from old)) from swept " +
			"where c.claim = swept.claim) select concat_ws(' ', count(*), " + micros("max(until)") + ") from old"),
	}
}
