package testbed

import (
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// OrdinaryUser is a user of MySQL or MariaDB who has no privileges but those that locks take, and
// further ones. Its name is the fixture's label, with a suffix.
func OrdinaryUser(t *testing.T, f *Fixture[*sql.Tx], suffix string, further ...string) *mysql.Config {
	t.Helper()
	name := f.Label + suffix
	user := "'" + name + "'@'%'"
	f.AsAdmin(t, "CREATE USER "+user)
	t.Cleanup(func() { f.AsAdmin(t, "DROP USER "+user) })
	grants := append([]string{"GRANT SELECT, UPDATE ON " + f.Table(), "GRANT ALL ON " + f.Label + ".*"}, further...)
	for _, grant := range grants {
		f.AsAdmin(t, grant+" TO "+user)
	}
	config, err := mysql.ParseDSN(f.DSNFor(f.Label, "", nil))
	require.NoError(t, err)
	config.User, config.Passwd = name, ""
	return config
}
