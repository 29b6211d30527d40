package main

import (
	"context"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

// A value that nobody has made is a panic or an error that says what is missing, from every method.
func TestZeroValues(t *testing.T) {
	for _, zero := range []any{
		&txlock.Locker[pgx.Tx]{}, &txlock.Mutex[pgx.Tx]{}, &txlock.Lock{}, &txlock.Once[pgx.Tx]{},
		&txlock.AnyRows[int64, pgx.Tx]{},
		&txlock.Claim[pgx.Tx]{}, &txlock.Claimed[pgx.Tx]{}, &txlock.Election[pgx.Tx]{},
		&txlock.Combined[pgx.Tx, int, int]{},
		txlock.Combine[pgx.Tx, int, int](func([]int) *txlock.Mutex[pgx.Tx] { return &txlock.Mutex[pgx.Tx]{} },
			func(context.Context, pgx.Tx, []int) ([]txlock.Result[int], error) { return nil, nil }),
	} {
		value := reflect.ValueOf(zero)
		for i := range value.NumMethod() {
			name := strings.TrimPrefix(value.Type().String(), "*txlock.") + "." + value.Type().Method(i).Name
			t.Run(name, func(t *testing.T) {
				defer func() {
					if raised := recover(); raised != nil {
						_, is := raised.(runtime.Error)
						require.False(t, is, "%v", raised)
						require.Contains(t, raised, "txlock: ")
					}
				}()
				results := value.Method(i).Call(arguments(value.Method(i).Type()))
				if n := len(results); n > 0 && value.Method(i).Type().Out(n-1) == reflect.TypeFor[error]() {
					err, _ := results[n-1].Interface().(error)
					require.Error(t, err)
				}
			})
		}
	}
}

// arguments are ones that a function can do something with.
func arguments(of reflect.Type) (values []reflect.Value) {
	fixed := of.NumIn()
	if of.IsVariadic() {
		fixed--
	}
	for i := range fixed {
		switch in := of.In(i); {
		case in == reflect.TypeFor[context.Context]():
			values = append(values, reflect.ValueOf(context.Background()))
		case in == reflect.TypeFor[time.Duration]():
			values = append(values, reflect.ValueOf(time.Hour))
		case in.Kind() == reflect.String:
			values = append(values, reflect.ValueOf("x"))
		case in.Kind() == reflect.Func:
			values = append(values, reflect.MakeFunc(in, func([]reflect.Value) (out []reflect.Value) {
				for i := range in.NumOut() {
					out = append(out, reflect.Zero(in.Out(i)))
				}
				return out
			}))
		default:
			values = append(values, reflect.Zero(in))
		}
	}
	return values
}
