package txlock_test
import ("testing";"context";"time";"errors";"database/sql";"github.com/stretchr/testify/require"; "github.com/jackc/pgx/v5"; "github.com/jackc/pgx/v5/pgxpool"
_ "github.com/jackc/pgx/v5/stdlib"
"github.com/txlock/txlock"; "github.com/txlock/txlock/dialects"; "github.com/txlock/txlock/dialects/postgres"; "github.com/txlock/txlock/dialects/mysql")
func smoke[Tx any](t *testing.T, d dialects.Driver[Tx], exec func(context.Context, Tx, string) error) {
 ctx:=context.Background(); l:=txlock.New(d)
 require.NoError(t,l.Install(ctx)); require.NoError(t,l.Install(ctx)); require.NoError(t,l.Check(ctx))
 lock,err:=l.Mutex("a").Lock(ctx); require.NoError(t,err)
 _,err=l.Mutex("a").TryLock(ctx); require.ErrorIs(t,err,txlock.ErrNotAcquired); t.Log(err)
 start:=time.Now(); _,err=l.Mutex("a","b").Within(200*time.Millisecond).Lock(ctx); require.ErrorIs(t,err,txlock.ErrNotAcquired);require.ErrorIs(t,err,context.DeadlineExceeded); t.Log(time.Since(start),err)
 c,cancel:=context.WithCancel(ctx); time.AfterFunc(100*time.Millisecond,cancel); start=time.Now(); _,err=l.Mutex("a").Lock(c); require.ErrorIs(t,err,context.Canceled); t.Log(time.Since(start),err)
 _,err=l.Mutex("a").Lock(lock.Context()); require.NoError(t,err)
 l2,err:=l.Mutex("b","c").Lock(lock.Context()); require.NoError(t,err); require.NoError(t,l2.Unlock(ctx))
 require.NoError(t,lock.Unlock(ctx)); require.ErrorIs(t,lock.Unlock(ctx),txlock.ErrNotHeld)
 require.NoError(t,l.Mutex("x").Do(ctx,func(ctx context.Context,tx Tx) error{ if e:=exec(ctx,tx,"insert into smoke values(0)");e!=nil{return e}; return nil}) ) 
 boom:=errors.New("boom")
 require.Equal(t,boom,l.Mutex("x").Do(ctx,func(ctx context.Context,tx Tx) error{ exec(ctx,tx,"insert into smoke values(1)"); return l.Mutex("y").Do(ctx,func(ctx context.Context,tx Tx) error{return boom})}))
 err=l.Mutex("x").Do(ctx,func(ctx context.Context,tx Tx) error{ exec(ctx,tx,"COMMIT"); t.Log("after commit:",exec(ctx,tx,"insert into smoke values(2)")); return nil}); require.ErrorIs(t,err,txlock.ErrLost); t.Log(err)
 err=l.Mutex("x").Do(ctx,func(ctx context.Context,tx Tx) error{ exec(ctx,tx,"ROLLBACK"); t.Log("after rollback:",exec(ctx,tx,"insert into smoke values(3)")); return nil}); require.ErrorIs(t,err,txlock.ErrLost); t.Log(err)
 err=l.Rows("nonesuch","a",1).Do(ctx,func(ctx context.Context,tx Tx) error{ return nil}); t.Log(err)
 err=l.Rows("smoke","a",77,78).Do(ctx,func(ctx context.Context,tx Tx) error{ return nil}); require.ErrorIs(t,err,txlock.ErrNoRow); t.Log(err)
 require.NoError(t,l.Close())
}
func TestSmoke(t *testing.T){ ctx:=context.Background()
 pe:=func(ctx context.Context,tx pgx.Tx,q string) error{_,e:=tx.Exec(ctx,q);return e}
 se:=func(ctx context.Context,tx *sql.Tx,q string) error{_,e:=tx.ExecContext(ctx,q);return e}
 for _,u:=range []string{"postgres://postgres@127.0.0.1:25418/postgres","postgres://postgres@127.0.0.1:25415/postgres"} {
 t.Run("pg",func(t *testing.T){p,err:=pgxpool.New(ctx,u);require.NoError(t,err);defer p.Close();smoke(t,postgres.New(p),pe)})
 t.Run("pgsimple",func(t *testing.T){p,err:=pgxpool.New(ctx,u+"?default_query_exec_mode=simple_protocol");require.NoError(t,err);defer p.Close();smoke(t,postgres.New(p),pe)})
 t.Run("pgexec",func(t *testing.T){p,err:=pgxpool.New(ctx,u+"?default_query_exec_mode=exec");require.NoError(t,err);defer p.Close();smoke(t,postgres.New(p),pe)})
 t.Run("pgopen",func(t *testing.T){d,err:=postgres.Open(ctx,u);require.NoError(t,err);smoke(t,d,pe)})
 t.Run("pgsql",func(t *testing.T){d,err:=sql.Open("pgx",u);require.NoError(t,err);defer d.Close();smoke(t,postgres.NewSQL(d),se)})
 }
 for _,u:=range []string{"root@tcp(127.0.0.1:23306)/t","root@tcp(127.0.0.1:23307)/t"} {
 t.Run("my",func(t *testing.T){d,err:=sql.Open("mysql",u);require.NoError(t,err);defer d.Close();smoke(t,mysql.New(d),se)})
 t.Run("myopen",func(t *testing.T){d,err:=mysql.Open(ctx,u);require.NoError(t,err);smoke(t,d,se)})
 }
}
