package pgstore

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sessionSettings are the parameters that the program sets for its own sessions.
var sessionSettings = []string{
	"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout",
	"search_path", "synchronous_commit", "plan_cache_mode", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit",
	"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count",
}

// SharesSessions reports whether the connection string asks for statements that do not rely on a
// session (default_query_exec_mode=cache_describe), as behind a pooler that gives
// each transaction another session. Then nothing else may rely on one either.
func SharesSessions(cfg *pgx.ConnConfig) bool {
	return cfg.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement
}

// PrepareSession leaves the settings out of a connection whose sessions are shared.
func PrepareSession(c *pgx.ConnConfig) {
	if SharesSessions(c) {
		for _, name := range sessionSettings {
			delete(c.RuntimeParams, name)
		}
	}
}

// PrepareSessions makes the settings of shared sessions go with each transaction:
// poolers refuse most start-up parameters, and a SET would stay behind for others.
func PrepareSessions(cfg *pgxpool.Config) {
	if !SharesSessions(cfg.ConnConfig) {
		return
	}
	before := cfg.BeforeConnect
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		PrepareSession(c) // the pool's own configuration keeps them
		if before != nil {
			return before(ctx, c)
		}
		return nil
	}
}

// transactionOptions adds the settings to a pool's transactions, where sessions are shared.
func transactionOptions(pool *pgxpool.Pool, opts pgx.TxOptions) pgx.TxOptions {
	cfg := pool.Config().ConnConfig
	if !SharesSessions(cfg) {
		return opts
	}
	var calls []string
	for _, name := range sessionSettings {
		if value, ok := cfg.RuntimeParams[name]; ok && !strings.HasPrefix(name, "tcp_") {
			calls = append(calls, "set_config("+literal(name)+", "+literal(value)+", true)")
		}
	}
	begin := []string{"begin"}
	if opts.IsoLevel != "" {
		begin = append(begin, "isolation level", string(opts.IsoLevel))
	}
	if opts.AccessMode != "" {
		begin = append(begin, string(opts.AccessMode))
	}
	statements := []string{strings.Join(begin, " ")}
	if len(calls) > 0 {
		statements = append(statements, "select "+strings.Join(slices.Sorted(slices.Values(calls)), ", "))
	}
	return pgx.TxOptions{BeginQuery: strings.Join(statements, "; ")} // one round trip
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
