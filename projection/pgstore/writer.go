package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The composite type that carries a batch, as registered with each connection.
const (
	changeTypeName  = "order_change"
	changeArrayName = "_order_change"
)

// registerTimeout bounds the look-up of the types on a new connection where connecting has no timeout.
const registerTimeout = 5 * time.Second

var errNoChangeType = errors.New("the database has no type order_change (run: orderprojector migrate up)")

// PrepareWriter configures the pool of a Store, before it is opened.
func PrepareWriter(cfg *pgxpool.Config) {
	for name, value := range map[string]string{
		// Every statement looks up the keys of a batch, so index look-ups are always
		// right. Left alone, the planner prefers scans while a table is small or has no statistics, and
		// keeps such a plan while it grows: minutes of slow batches.
		"plan_cache_mode":  "force_generic_plan",
		"enable_seqscan":   "off",
		"enable_hashjoin":  "off",
		"enable_mergejoin": "off",
		// Compiling a statement takes longer than running any of these.
		"jit": "off",
	} {
		if _, given := cfg.ConnConfig.RuntimeParams[name]; !given {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	PrepareSessions(cfg)
	before := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		// The pool connects in the background, with a context that does not end: a
		// connection that fell silent here would take its place for ever.
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(conn.Config().ConnectTimeout, registerTimeout))
		defer cancel()
		return registerChange(ctx, conn)
	}
}

func registerChange(ctx context.Context, conn *pgx.Conn) error {
	var element, array *uint32
	err := conn.QueryRow(ctx, `SELECT to_regtype('order_change')::oid, to_regtype('order_change[]')::oid`).Scan(&element, &array)
	if err != nil {
		return fmt.Errorf("looking up the type order_change: %w", err)
	}
	if element == nil || array == nil {
		return nil // not migrated yet: the first write says so
	}
	types := conn.TypeMap()
	types.RegisterType(&pgtype.Type{Name: changeTypeName, OID: *element, Codec: changesCodec{}})
	types.RegisterType(&pgtype.Type{Name: changeArrayName, OID: *array, Codec: changesCodec{}})
	types.RegisterDefaultPgType(changes{}, changeArrayName)
	return nil
}

// changeType returns the OID of order_change. A connection from before the migration learns of it here.
func (t *tx) changeType(ctx context.Context) (oid uint32, err error) {
	registered, ok := t.Conn().TypeMap().TypeForName(changeTypeName)
	if !ok {
		if err := registerChange(ctx, t.Conn()); err != nil {
			return 0, err
		}
		if registered, ok = t.Conn().TypeMap().TypeForName(changeTypeName); !ok {
			return 0, errNoChangeType
		}
	}
	return registered.OID, nil
}
