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

// registerTimeout bounds the look-up of the types on a new connection where connecting has no timeout.
const registerTimeout = 5 * time.Second

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
		return registerTypes(ctx, conn)
	}
}

// registerTypes teaches a connection the types of the writer's parameters.
func registerTypes(ctx context.Context, conn *pgx.Conn) error {
	registerKeys(conn)
	types := conn.TypeMap()
	for _, kind := range changeKinds {
		var element, array *uint32
		err := conn.QueryRow(ctx, `SELECT to_regtype($1)::oid, to_regtype($1 || '[]')::oid`, kind.name).Scan(&element, &array)
		if err != nil {
			return fmt.Errorf("looking up the type %s: %w", kind.name, err)
		}
		if element == nil || array == nil {
			return nil // not migrated yet: the first write says so
		}
		types.RegisterType(&pgtype.Type{Name: kind.name, OID: *element, Codec: changesCodec{}})
		types.RegisterType(&pgtype.Type{Name: "_" + kind.name, OID: *array, Codec: changesCodec{}})
	}
	return nil
}

var errNoChangeType = errors.New("the database lacks a type of the schema (run: orderprojector migrate up)")

// typeOID returns the OID of a composite type. A connection from before the migration learns of it here.
func (t *tx) typeOID(ctx context.Context, name string) (oid uint32, err error) {
	registered, ok := t.Conn().TypeMap().TypeForName(name)
	if !ok {
		if err := registerTypes(ctx, t.Conn()); err != nil {
			return 0, err
		}
		if registered, ok = t.Conn().TypeMap().TypeForName(name); !ok {
			return 0, fmt.Errorf("%w: %s", errNoChangeType, name)
		}
	}
	return registered.OID, nil
}
