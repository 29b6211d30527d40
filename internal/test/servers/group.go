package servers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// group is the flow of a replication group of three servers of MySQL with one primary, as InnoDB
// Cluster has it.
type group struct{}

// groupSettings are for the member with this number, of three. A server starts read only and in no
// group, so that one that crashed does not come back as a second primary. A primary that does not
// reach the majority gives up after some seconds; otherwise it would wait for ever, and its
// sessions would hold their locks.
func groupSettings(number int, own, all string) []string {
	return append(memberSettings(number, own, all),
		"--sync-binlog=0", "--relay-log-recovery=ON", "--super-read-only=ON",
		"--sql-generate-invisible-primary-key=ON", // without one, the group takes no writes to a table
		"--loose-group-replication-start-on-boot=OFF",
		"--loose-group-replication-recovery-get-public-key=ON",
		"--loose-group-replication-consistency=BEFORE_ON_PRIMARY_FAILOVER",
		"--loose-group-replication-member-expel-timeout=1",
		"--loose-group-replication-unreachable-majority-timeout="+strconv.Itoa(majorityTimeout),
		"--loose-group-replication-autorejoin-tries=0", "--loose-group-replication-exit-state-action=OFFLINE_MODE",
	)
}

// memberSettings are for the member of a group with this number. It has an address of its own for
// traffic between members, and knows those of all.
func memberSettings(number int, own, all string) []string {
	return []string{
		"--server-id=" + strconv.Itoa(number), "--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
		"--report-host=127.0.0.1", "--plugin-load-add=group_replication.so",
		"--loose-group-replication-group-name=74786c6f-636b-4000-8000-000000000001",
		"--loose-group-replication-local-address=" + own, "--loose-group-replication-group-seeds=" + all,
	}
}

// majorityTimeout is how long a primary waits for its majority, in seconds.
const majorityTimeout = 10

// StartGroup starts a group.
func StartGroup(ctx context.Context) (*Fleet, error) {
	found, err := privatePrograms(ctx, MySQL)
	if err != nil {
		return nil, err
	}
	own, all, err := threeAddresses()
	if err != nil {
		return nil, err
	}
	f := &Fleet{Kind: MySQL, Synchronous: true, flow: group{}}
	for i := range own {
		server, err := startEmpty(ctx, found, MySQL, groupSettings(i+1, own[i], all))
		if err != nil {
			return nil, errors.Join(err, f.Stop())
		}
		f.servers = append(f.servers, server)
		if i == 0 {
			f.primary = server
			err = tell(ctx, server, append([]string{
				"SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION",
				"SET GLOBAL group_replication_bootstrap_group = OFF", "CREATE DATABASE txlock",
				"CREATE TABLE txlock.quorum (n INT PRIMARY KEY)", "INSERT INTO txlock.quorum VALUES (1)",
			}, clientUser...)...)
		} else {
			err = join(ctx, server, f.primary)
		}
		if err != nil {
			return nil, errors.Join(err, f.Stop())
		}
	}
	return f, nil
}

// threeAddresses are free ones for the traffic between the servers of a cluster, one by one and all
// together.
func threeAddresses() (own [3]string, all string, err error) {
	for i := range own {
		port, err := freePort()
		if err != nil {
			return own, "", err
		}
		own[i] = "127.0.0.1:" + strconv.Itoa(port)
	}
	return own, strings.Join(own[:], ","), nil
}

// join makes a server a member that is up to date. What the server says of itself is not enough:
// one that was stopped says for seconds that it is ONLINE, although the others have expelled it.
func join(ctx context.Context, server, primary *Server) error {
	if err := server.running(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*startUp) // START waits for a minute itself, and may fail
	defer cancel()
	return on(server, func(a asks) error {
		uuid, err := a.text(ctx, "SELECT @@server_uuid")
		if err != nil {
			return err
		}
		err = on(primary, func(others asks) error {
			return poll(ctx, 100*time.Millisecond, func() error {
				own, err := stateOf(ctx, a, uuid)
				if err == nil && (own == "OFFLINE" || own == "ERROR") {
					err = a.do(ctx, "STOP GROUP_REPLICATION", "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' FOR "+
						"CHANNEL 'group_replication_recovery'", "START GROUP_REPLICATION")
				}
				if err != nil {
					return err
				}
				seen, err := stateOf(ctx, others, uuid)
				if err == nil && (own != "ONLINE" || seen != own) {
					err = fmt.Errorf("it says that it is %s, the primary that it is %s", own, seen)
				}
				return err
			})
		})
		if err != nil {
			return err
		}
		return a.do(ctx, "SET GLOBAL offline_mode = OFF")
	})
}

// stateOf is the state of a member, as a server sees it.
func stateOf(ctx context.Context, a asks, uuid string) (string, error) {
	return a.text(ctx, "SELECT COALESCE(MAX(MEMBER_STATE), 'OFFLINE') FROM "+
		"performance_schema.replication_group_members WHERE MEMBER_ID = ?", uuid)
}

// asks implements flow. A member that was stopped, or is cut off, says that it takes writes until
// it learns better. So the question, of a table, is put at a level for which it needs the group.
// One that leaves needs it no more, and is not read only yet: so it is asked for its role as well.
func (group) asks(server *Server) (question, error) {
	return byQuery(MySQL, server.DSN+"?group_replication_consistency=%27BEFORE%27",
		"SELECT NOT @@read_only AND NOT @@offline_mode AND EXISTS (SELECT * FROM "+
			"performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid AND "+
			"MEMBER_STATE = 'ONLINE' AND MEMBER_ROLE = 'PRIMARY') FROM txlock.quorum")
}

func (group) end(ctx context.Context, f *Fleet, way Way) error {
	others := f.others()
	if way == Isolated {
		for _, member := range others {
			if err := member.Pause(); err != nil {
				return err
			}
		}
		err := on(f.primary, func(a asks) error { return a.until(ctx, "SELECT @@super_read_only") })
		for _, member := range others {
			err = errors.Join(err, member.Continue())
		}
		return err
	}
	next, err := answerOf(ctx, others[0], "SELECT @@server_uuid")
	if err != nil {
		return err
	}
	// The clients' sessions end first, as those of a pair do.
	return on(f.primary, func(a asks) error {
		if err := a.do(ctx, "SET GLOBAL offline_mode = ON"); err != nil {
			return err
		}
		if err := a.until(ctx, noClients); err != nil {
			return err
		}
		_, err := a.text(ctx, "SELECT group_replication_set_as_primary('"+next+"')")
		return err
	})
}

func (group) promote(ctx context.Context, f *Fleet) (*Server, error) { return f.elect(ctx) }

// rejoin makes the former primary a member again, and any other that has given up meanwhile.
func (group) rejoin(ctx context.Context, f *Fleet) error {
	for _, member := range f.servers {
		if err := join(ctx, member, f.primary); err != nil {
			return fmt.Errorf("make %s a member: %w", member.DSN, err)
		}
	}
	return nil
}

func (group) stop() error { return nil }
