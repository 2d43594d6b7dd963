package app

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// PoolRole says what a pool is for; PostgreSQL shows it in application_name.
type PoolRole string

// The roles. Reads have a pool of their own, so that questions, health checks and
// metrics never take a connection from the writers.
const (
	WritePool   PoolRole = "write"
	ReadPool    PoolRole = "read"
	migratePool PoolRole = "migrate"
	RebuildPool PoolRole = "rebuild" // compares and exchanges tables
	shadowPool  PoolRole = "shadow"  // fills the tables of a rebuild
)

// OpenPool makes a pool of at most maxConns connections, or pool_max_conns of the connection string. It does not connect:
// a database that is down shows when the pool is used.
func OpenPool(ctx context.Context, db config.Database, role PoolRole, maxConns int) (*pgxpool.Pool, error) {
	return openPool(ctx, db, role, maxConns, nil)
}

// OpenShadowPool makes a pool of writers whose sessions look for tables along a search_path. What they
// commit may be lost when the server crashes, as with any of its watermarks that come with it: a
// rebuild notices, and reads again.
func OpenShadowPool(ctx context.Context, db config.Database, maxConns int, searchPath string) (*pgxpool.Pool, error) {
	return openPool(ctx, db, shadowPool, maxConns, map[string]string{"search_path": searchPath, "synchronous_commit": "off"})
}

func openPool(ctx context.Context, db config.Database, role PoolRole, maxConns int, settings map[string]string) (*pgxpool.Pool, error) {
	cfg, err := parseURL(db.URL)
	if err != nil {
		return nil, err
	}
	if !limitsConns(db.URL.Reveal()) {
		cfg.MaxConns = int32(maxConns)
	}
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	cfg.MaxConnLifetime = 30 * time.Minute
	cfg.MaxConnLifetimeJitter = 3 * time.Minute
	cfg.MaxConnIdleTime = 5 * time.Minute
	// Idle connections that a firewall forgot are tried one after the other.
	cfg.PingTimeout = min(db.ConnectTimeout, time.Second)
	configureConn(cfg.ConnConfig, db, role)
	maps.Copy(cfg.ConnConfig.RuntimeParams, settings)
	if role == WritePool || role == shadowPool {
		pgstore.PrepareWriter(cfg)
	} else {
		pgstore.PrepareSessions(cfg)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("opening the database pool: %w", err)
	}
	return pool, nil
}

// parseURL understands what the connection string says of pools, too, also where there is none.
func parseURL(u config.DatabaseURL) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(u.Reveal())
	if err != nil { // its message may quote the password
		return nil, &config.Error{Name: "database-url", Value: u.String(), Problem: "is not a PostgreSQL connection string"}
	}
	return cfg, nil
}

// configureConn sets what every session gets, also after a reconnect. What the
// connection string itself says wins.
func configureConn(cfg *pgx.ConnConfig, db config.Database, role PoolRole) {
	cfg.ConnectTimeout = db.ConnectTimeout
	dialer := &net.Dialer{
		Timeout: db.ConnectTimeout,
		// A peer that vanished without a word is noticed in half a minute.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4},
	}
	cfg.DialFunc = dialer.DialContext
	params := cfg.RuntimeParams
	setDefault(params, "application_name", "orderprojector-"+string(role))
	setDefault(params, "statement_timeout", milliseconds(db.StatementTimeout))
	setDefault(params, "lock_timeout", milliseconds(db.LockTimeout))
	setDefault(params, "idle_in_transaction_session_timeout", milliseconds(db.IdleInTransactionTimeout))
	if (role == WritePool || role == shadowPool || role == RebuildPool) && cfg.ValidateConnect == nil {
		// After a failover the old primary may come back as a standby: look
		// for the one that takes writes instead of failing on each.
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// limitsConns reports whether the connection string itself says how large a pool may be.
func limitsConns(dsn string) bool {
	cfg, err := pgconn.ParseConfig(dsn)
	return err == nil && cfg.RuntimeParams["pool_max_conns"] != ""
}

func setDefault(params map[string]string, name, value string) {
	if _, given := params[name]; !given {
		params[name] = value
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
