package kinds

import "github.com/txlock/txlock/dialects"

// claimsOf reads the clock behind the lock of a row. A statement sees a row, or that there is none.
// So Take makes a missing one in front, as one that has ended.
func claimsOf(table string) dialects.ClaimSQL {
	line := func(number string) string {
		return "select concat_ws(' ', " + number + ", c.token, c.secret, " + micros("c.since") + ", " +
			micros("c.until") + ", " + micros("c.until") + " - " + micros("NOW") + ", encode(c.claim, 'hex'), " +
			"encode(convert_to(c.holder, 'UTF8'), 'hex'), encode(convert_to(coalesce(c.name, ''), 'UTF8'), 'hex')) " +
			"from "
	}
	read := line("1") + "{} c where c.until > NOW "
	held := " where claim = $1::bytea and holder = $2::text and token = $3::bigint and $4::bigint in (secret, 0) and " +
		"until > NOW"
	end := "(" + micros("until") + ")::text"
	return dialects.ClaimSQL{
		Table: table,
		Read:  of(table, read+"and c.claim = $1::bytea"),
		List:  of(table, read+"order by c.until limit 10000"),
		Keep:  of(table, "select "+end+" from {}"+held), // at READ COMMITTED: LockTx refuses other transactions
		Move: of(table, "update {} set until = case when $5::bigint > 0 then NOW + $5::MICROSECONDS else "+
			"to_timestamp(0) end"+held+" returning "+end),
		Take: of(table, "insert into {} (claim, holder, token, secret, since, until) select $1::bytea, '', "+
			micros("NOW")+", 0, at, at from to_timestamp(0) at where not exists (select from {} where claim = "+
			"$1::bytea) on conflict do nothing;\n"+
			"with mine as materialized (select claim from {} where claim = $1::bytea and (until <= NOW or holder = "+
			"$2::text) for update skip locked), clock as materialized (select NOW as now from mine), "+
			"taken as (update {} c set holder = $2::text, name = nullif($4::text, ''), until = now + "+
			"$5::MICROSECONDS, token = c.token + (c.until <= now)::int, "+
			"secret = case when c.until > now then c.secret else $3::bigint end, "+
			"since = case when c.until > now then c.since else now end "+
			"from clock where c.claim = $1::bytea returning c.*) "+line("1")+"taken c union all "+
			line("0")+"{} c where c.claim = $1::bytea and not exists (select from taken)"),
		Sweep: sweep(table, "claim", "until"),
	}
}
