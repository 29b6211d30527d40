package identifier

import (
	"regexp"
	"strings"
)

// Needed is the value of a setting of PostgreSQL's without which texts and names in SQL mean
// something else, or "" if it has one that serves. Some poolers send back what a client wrote, so
// every spelling of it does, and so does none that is known.
func Needed(setting, value string) string {
	needed := serves[setting]
	if value == "" || needed.values.MatchString(strings.TrimSpace(value)) {
		return ""
	}
	return needed.value
}

var serves = map[string]struct {
	value  string
	values *regexp.Regexp
}{
	"client_encoding":             {"UTF8", regexp.MustCompile(`^(?i)(utf[-_]?8|unicode)$`)},
	"standard_conforming_strings": {"on", regexp.MustCompile(`^(?i)(on|t|tr|tru|true|y|ye|yes|1)$`)},
	// That of the session's temporary tables stands in front, and has no operators.
	"search_path": {"pg_catalog", regexp.MustCompile(`^(pg_temp\w*,)?pg_catalog(,|$)`)},
}
