package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
)

// options are the flags that all commands have.
type options struct {
	dsn     string
	table   string
	hide    bool       // keys, on the server
	server  dsn.Server // once the URL has been read
	signals *signals
	typed   []string // the command line
}

const rootHelp = `Locks on the database that you run already: PostgreSQL, MySQL or MariaDB.

The server is a URL, in TXLOCK_DSN or --dsn:

  postgres://user@host:5432/database   PGPASSWORD, PGPASSFILE and libpq's other
                                       variables count
  mysql://user@host:3306/database      MariaDB too; the password may be in
                                       MYSQL_PWD; parameters of
                                       go-sql-driver/mysql, ssl-mode=REQUIRED,
                                       or socket=/path
  user@tcp(host:3306)/database         the same, in the form of that driver

A password in --dsn is wiped from the list of processes at start, but a shell's history keeps it:
rather use the variables. Connecting takes at most 10s, unless the URL says connect_timeout=3
(PostgreSQL) or timeout=3s (MySQL, MariaDB).

Exit codes, besides those of a command that "txlock run" has run:

   0  it worked                         75  the lock was not acquired
   1  another error; of doctor          76  the lock was lost meanwhile
      --strict, warnings                77  this role may not do that
   2  of doctor: failures               78  database or lock table missing, or the
   3  of break: nobody holds it;            server is no good for locks
      of once --done: it was not       126  the command cannot be executed
   4  of break: not confirmed          127  the command was not found
  64  wrong flags or arguments       128+n  ended by signal n; 130: ctrl-C;
  69  the server cannot be reached          141: nobody reads the output`

const rootExample = `  export TXLOCK_DSN=postgres://app@db.example/shop
  txlock install
  txlock run nightly-report -- ./report.sh
  txlock status
  txlock doctor`

func newRoot(o *options, out io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use: "txlock", Short: "Locks on the database that you run already", Long: rootHelp, Example: rootExample,
		Version: version(), SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return o.checkTable() },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.PersistentFlags().StringVar(&o.dsn, "dsn", "", "the server as a URL (default: TXLOCK_DSN)")
	root.PersistentFlags().StringVar(&o.table, "table", doctor.DefaultTable, "the lock table")
	root.AddCommand(newRun(o), newOnce(o), newSweep(o), newClaim(o), newRelease(o), newStatus(o), newBreak(o),
		newServe(o), newDoctor(o), newInstall(o), newSchema(o), newSlot(o))
	root.SetOut(out)
	root.SetErr(os.Stderr)
	o.complete(root)
	return root
}

// newCommand is one of the commands. No command names flags that all have.
func newCommand(use, short, long, example string, run func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, DisableFlagsInUseLine: true, RunE: run,
	}
}

// print writes what a command is for.
func (o *options) print(c *cobra.Command, format string, arguments ...any) error {
	_, err := fmt.Fprintf(c.OutOrStdout(), format, arguments...)
	return o.failed(c.Context(), "write", err)
}

// checkTable refuses an invalid table name if the kind of server is known. Without a URL it refuses
// nothing: a command that needs a server reports that itself.
func (o *options) checkTable() error {
	if o.table == doctor.DefaultTable || o.find() != nil {
		return nil
	}
	_, err := o.schema("", layout{})
	return err
}

// noArguments refuses arguments, and says so clearly.
func noArguments(c *cobra.Command, arguments []string) error {
	if len(arguments) > 0 {
		return fmt.Errorf("%s takes no arguments, but got %q", c.Name(), arguments[0])
	}
	return nil
}

// version is the module system's version of this binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return fmt.Sprintf("%s (%s, %s/%s)", info.Main.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
