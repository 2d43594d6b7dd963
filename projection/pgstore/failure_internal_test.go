package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderprojector/orderprojector/projection"
)

func TestClassifyGoesBySQLState(t *testing.T) {
	for class, codes := range map[projection.Failure][]string{
		projection.Transient: {
			"08000", "08003", "08006", "08P01", // connection exceptions
			"40001", "40P01", // serialization, deadlock
			"57P01", "57P02", "57P03", "57P05", // shutting down, crashed, starting up, idle for too long
			"53000", "53100", "53200", "53300", // disk, memory, connections
			"25006", "25P03", "25P04",
			"0A000", "26000", "42P05",
		},
		projection.Locked:    {"55P03"},
		projection.Denied:    {"42501"},
		projection.TooSlow:   {"57014"},
		projection.BadData:   {"22001", "22003", "22021", "22P02", "22P05", "23502", "23503", "23514", "54000", "54001"},
		projection.Unhealthy: {"42P01", "P0001", "42703", "28000", "28P01", "3D000", "58000", "58030", "XX000", "XX001", "25P02", "40002", "55006"},
	} {
		for _, code := range codes {
			// What the text says does not matter.
			err := error(&pgconn.PgError{Code: code, Message: "connection refused: deadlock detected", ConstraintName: "somebody_elses_key"})
			if got := (*Store)(nil).Classify(fmt.Errorf("writing orders: %w", err)); got != class {
				t.Errorf("%s is %v, not %v", code, got, class)
			}
		}
	}
	for constraint, class := range map[string]projection.Failure{
		"order_rows_pkey": projection.LostRace, "parked_events_pkey": projection.LostRace, "projection_watermarks_pkey": projection.LostRace,
		"made_by_somebody": projection.BadData,
	} {
		if got := (*Store)(nil).Classify(&pgconn.PgError{Code: "23505", ConstraintName: constraint}); got != class {
			t.Errorf("23505 on %s is %v, not %v", constraint, got, class)
		}
	}
	for _, err := range []error{io.ErrUnexpectedEOF, context.DeadlineExceeded, &connectionError{errors.New("conn busy")}} {
		if got := (*Store)(nil).Classify(err); got != projection.Transient {
			t.Errorf("%v is %v", err, got)
		}
	}
	if got := (*Store)(nil).Classify(&connectionError{&commitError{io.ErrUnexpectedEOF}}); got != projection.Unanswered {
		t.Errorf("a COMMIT without an answer is %v", got)
	}
	if got := (*Store)(nil).Classify(&acquireError{context.DeadlineExceeded}); got != projection.Unconnected {
		t.Errorf("no connection in time is %v", got)
	}
	if got := (*Store)(nil).Classify(&commitError{&pgconn.PgError{Code: "P0001"}}); got != projection.Unhealthy {
		t.Errorf("a COMMIT that a deferred trigger refuses is %v", got)
	}
	// What nobody knows does not pass by itself, whatever its text says.
	if got := (*Store)(nil).Classify(errors.New("duplicate key value violates unique constraint (SQLSTATE 23514)")); got != projection.Unhealthy {
		t.Errorf("an unknown error is %v", got)
	}
	if got := (*Store)(nil).Classify(&freshConnectionError{&pgconn.PgError{Code: "0A000"}}); got != projection.Unhealthy {
		t.Errorf("a statement that is not supported on a fresh connection either is %v", got)
	}
}
