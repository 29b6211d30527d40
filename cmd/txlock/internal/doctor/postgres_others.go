package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// lookAtOtherRoles looks for the settings of other roles that may lock, and that end a lock or a
// wait: programs often have another role than who asks the doctor.
func (p *postgresServer) lookAtOtherRoles(ctx context.Context) ([]Finding, error) {
	const query = `SELECT quote_ident(r.rolname), s.setdatabase <> '0', split_part(c, '=', 1), split_part(c, '=', 2)
		FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) c
		WHERE r.rolname <> session_user AND r.rolcanlogin
		AND (s.setdatabase = '0' OR s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))
		AND has_any_column_privilege(r.oid, ` + object + `, 'UPDATE')
		AND split_part(c, '=', 1) = ANY($3) AND split_part(c, '=', 2) !~ '^0+[a-z ]*$' ORDER BY 1, 3, 2`
	whys := map[string]string{}
	var names []string
	for _, limit := range timeouts {
		whys[limit.name] = limit.why
		names = append(names, limit.name)
	}
	rows, err := p.conn.Query(ctx, query, p.quoted, qualified(p.quoted), names)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	var role, name, value string
	var here bool
	_, err = pgx.ForEachRow(rows, []any{&role, &here, &name, &value}, func() error {
		where, alter := "", "ALTER ROLE "+role
		if here {
			where, alter = " in this database", alter+" IN DATABASE "+p.database
		}
		findings = append(findings, Finding{
			Severity: Note, Why: whys[name],
			Found: fmt.Sprintf("%s = %s is set for role %s%s, which may lock", name, value, role, where),
			Fix: statements(alter + " SET " + name + " = 0").only(
				"if its programs take locks, and should not lose them:"),
		})
		return nil
	})
	if err == nil && len(findings) == 0 {
		findings = one(Finding{Severity: OK, Found: "no other role that may lock has a limit on locks or waits"})
	}
	return findings, err
}
