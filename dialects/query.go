package dialects

// Query is a statement of a kind: text that Find has handed out, with arguments.
//
// Several statements are separated by a semicolon at the end of a line. On PostgreSQL, the last one
// has the rows, and each uses the first of the arguments, from $1 on. Elsewhere one has rows, and
// ? stands for the next argument.
type Query struct {
	SQL   string
	Args  []any  // string, []byte, int64
	Table string // that it is about, for errors
	// Reads says that it is one SELECT, which writes and locks nothing.
	Reads bool
}

// Kinds are the texts of the kinds of locks that are clients of the others, for one lock table.
type Kinds struct{}
