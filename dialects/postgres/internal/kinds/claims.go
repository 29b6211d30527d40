package kinds

import (
	"strings"

	"github.com/txlock/txlock/dialects"
)

// claimsOf reads the clock behind the lock of a row. A statement sees a row, or that there is none.
// So Take makes a missing one in front, as one that has ended.
func claimsOf(table string) dialects.ClaimSQL {
	line := func(number string) string {
		return "select concat_ws(' ', " + number + ", c.token, c.secret, " + micros("c.since") + ", " +
			micros("c.until") + ", " + micros("c.until") + " - " + micros("NOW") + ", encode(c.claim, 'hex'), " +
			"encode(convert_to(c.holder, 'UTF8'), 'hex'), encode(convert_to(coalesce(c.name, ''), 'UTF8'), 'hex')) " +
			"from "
	}
	fill := func(text string) string {
		return strings.NewReplacer("NOW", "clock_timestamp()", "MICROSECONDS", "float8 * interval '1 microsecond'",
			"{}", table).Replace(text)
	}
	read := fill(line("1") + "{} c where c.claim = $1::bytea")
	return dialects.ClaimSQL{
		Table: table,
		Read:  read,
		Keep:  read, // at READ COMMITTED: LockTx refuses other transactions
		List:  fill(line("1") + "{} c where c.until > NOW order by c.until limit 10000"),
		End:   fill("update {} set until = " + at("$2") + " where claim = $1::bytea"),
		Take: fill("insert into {} (claim, holder, token, secret, since, until) select $1::bytea, '', " +
			micros("NOW") + ", 0, at, at from to_timestamp(0) at where not exists (select from {} where claim = " +
			"$1::bytea) on conflict do nothing;\n" +
			"with mine as materialized (select claim from {} where claim = $1::bytea and (until <= NOW or holder = " +
			"$2::text) for update skip locked), clock as materialized (select NOW as now from mine), " +
			"taken as (update {} c set holder = $2::text, name = nullif($4::text, ''), until = now + " +
			"$5::MICROSECONDS, token = c.token + (c.until <= now)::int, " +
			"secret = case when c.until > now then c.secret else $3::bigint end, " +
			"since = case when c.until > now then c.since else now end " +
			"from clock where c.claim = $1::bytea returning c.*) " + line("1") + "taken c union all " +
			line("0") + "{} c where c.claim = $1::bytea and not exists (select from taken)"),
		Look: fill("with asked as materialized (select n, decode(a ->> 0, 'hex') claim, convert_from(decode(a ->> 1, " +
			"'hex'), 'UTF8') holder from json_array_elements($1::json) with ordinality list (a, n)), " +
			"free as materialized (select n from asked join {} c using (claim) where c.until <= NOW or c.holder = " +
			"asked.holder for update of c skip locked) select n from asked left join {} c using (claim) " +
			"where c.claim is null or n in (select n from free)"),
		Sweep: sweep(table, "claim", "until"),
	}
}
