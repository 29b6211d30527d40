package kinds

import (
	"strings"

	"github.com/txlock/txlock/dialects"
)

// claimsOf reads the clock behind the lock of a row: hence the row is locked in a statement in
// front. A statement sees a row, or what Sweep has left of it, and never neither.
func claimsOf(table string) dialects.ClaimSQL {
	const (
		now  = "clock_timestamp()"
		zero = "decode(repeat('0', 64), 'hex')"
		held = "c.holder = HOLDER::text and c.token = TOKEN::bigint and c.secret = SECRET::bigint and c.until > " + now
	)
	line := func(number string) string {
		return "select concat_ws(' ', " + number + ", c.token, c.secret, " + micros("c.since") + ", " +
			micros("c.until") + ", " + micros("c.until") + " - " + micros(now) +
			", encode(c.claim, 'hex'), encode(convert_to(c.holder, " +
			"'UTF8'), 'hex'), encode(convert_to(coalesce(c.name, ''), 'UTF8'), 'hex')) from "
	}
	heldBy := func(holder, token, secret string) string {
		return strings.NewReplacer("HOLDER", holder, "TOKEN", token, "SECRET", secret).Replace(held)
	}
	from := func(micros string) string { return " + " + micros + "::float8 * interval '1 microsecond'" }
	changed := func(as string) string {
		return line("1") + as + " c union all " + line("0") + table + " c where c.claim = $1::bytea and not exists " +
			"(select from " + as + ")"
	}
	former := func(column, otherwise string) string {
		return column + " = case when c.until > excluded.since then c." + column + " else " + otherwise + " end, "
	}
	return dialects.ClaimSQL{
		Table: table,
		Read:  line("1") + table + " c where c.claim = $1::bytea",
		List:  line("1") + table + " c where c.until > " + now + " order by c.until limit 10000",
		Keep: line("("+heldBy("$3", "$4", "$5")+")::int") + table +
			" c where c.claim = $1::bytea and c.claim = $2::bytea",
		End: "select claim from " + table + " where claim = $1::bytea for update;\n" +
			"with ended as (update " + table + " c set until = case when $2::bigint < 0 then to_timestamp(0) " +
			"else " + now +
			from("$2") + " end where c.claim = $1::bytea and " + heldBy("$3", "$4", "$5") +
			" returning c.*) " + changed("ended"),
		Take: "insert into " + table + " (claim, holder, token, secret, since, until) select $1::bytea, " +
			"$2::text, 0, 0, " +
			"to_timestamp(0), to_timestamp(0) from " + table + " swept where swept.claim = " + zero + " and " +
			"$3::bigint > 0 " +
			"and not exists (select from " + table + " where claim = $1::bytea) on conflict do nothing;\n" +
			"with mine as materialized (select claim from " + table + " where claim = $1::bytea and (until <= " +
			now + " or holder = $2::text) for update skip locked), " +
			"taken as (insert into " + table + " as c (claim, holder, secret, name, token, since, until) " +
			"select $1::bytea, $2::text, $4::bigint, nullif($5::text, ''), swept.token + 1, clock.now, clock.now" +
			from("$6") + " from " + table + " swept, (select " + now + " now) clock where swept.claim = " + zero +
			" and $3::bigint >= 0 and exists (select from mine) on conflict (claim) do update set " +
			former("secret", "excluded.secret") +
			former("token", "case when c.token = 0 then excluded.token else c.token + 1 end") +
			former("since", "excluded.since") +
			"name = excluded.name, holder = excluded.holder, until = excluded.until " +
			"where c.holder = excluded.holder or c.until <= excluded.since returning c.*) " + changed("taken"),
		Look: "with asked as materialized (select n, decode(a ->> 0, 'hex') claim, " +
			"convert_from(decode(a ->> 1, 'hex'), 'UTF8') holder " +
			"from json_array_elements($1::json) with ordinality list (a, n)), " +
			"free as materialized (select n from asked join " + table + " c using (claim) where c.until <= " + now +
			" or c.holder = asked.holder for update of c skip locked) " +
			"select n from asked left join " + table + " c using (claim) " +
			"where c.claim is null or n in (select n from free)",
		Sweep: "with swept as materialized (select claim from " + table + " where claim = " + zero + " for update " +
			"skip locked), old as (select claim, until, token from " + table + " where until >= " + at("$1") +
			" and until < now() - $2::float8 * interval '1 microsecond' and claim <> " + zero +
			" and exists (select from swept) order by until limit $3::bigint for update skip locked), " +
			"gone as (delete from " + table + " c using old where c.claim = old.claim), " +
			"kept as (update " + table + " c set token = greatest(c.token, (select max(token) from old)) from swept " +
			"where c.claim = swept.claim) select concat_ws(' ', count(*), " + micros("max(until)") + ") from old",
	}
}
