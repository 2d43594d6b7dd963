package pgstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderprojector/orderprojector/outbox/relay"
)

// failure classifies an error of the database by its SQLSTATE, never by its text.
func failure(what string, err error) *relay.Failure {
	f := &relay.Failure{Class: relay.Database, Err: fmt.Errorf("%s: %w", what, err)}
	if errors.Is(err, errOtherSession) {
		f.Class, f.Advice = relay.DatabaseSetup, "connect the relay to PostgreSQL itself, or to a pooler in session mode"
		return f
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return f
	}
	if pgErr.Code == "57014" { // its statement timed out; the session goes on
		f.Err = fmt.Errorf("%s: %w: %w", what, relay.ErrTooSlow, err)
	}
	for _, heals := range []string{"08", "53", "57", "40", "55", "25", "0A000", "26000", "42P05"} {
		if strings.HasPrefix(pgErr.Code, heals) {
			return f
		}
	}
	f.Class = relay.DatabaseSetup
	return f
}
