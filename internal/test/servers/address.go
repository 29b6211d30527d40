package servers

import (
	"net/url"
	"regexp"

	"github.com/go-sql-driver/mysql"
)

// Address is where the server listens: the host and the port in its DSN. It is empty if the DSN is
// none.
func (s *Server) Address() string {
	if s.Kind.Postgres() {
		if u, err := url.Parse(s.DSN); err == nil {
			return u.Host
		}
	} else if config, err := mysql.ParseDSN(s.DSN); err == nil {
		return config.Addr
	}
	return ""
}

var mysqlDSN = regexp.MustCompile(`^(.*)@tcp\((.*)\)/([^?]*).*$`)

// URL is the address of a database as the command txlock takes it.
func (s *Server) URL() string { return mysqlDSN.ReplaceAllString(s.DSN, "mysql://$1@$2/$3") }
