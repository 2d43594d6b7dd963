package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Append stores a message, to be published when tx commits and never when it
// does not. Call it behind the statement that locks the order's row and guards its version.
//
// An *InvalidError says that consumers would refuse the message; nothing was
// sent to the database, and tx is as it was. Every other error is the database's,
// after which tx can only be rolled back. One with SQLSTATE 23505 says that a message of the same order
// and version waits already: the version was not guarded.
func Append(ctx context.Context, tx pgx.Tx, m Message) error {
	payload, err := m.Payload()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, traceparent, tracestate)
		VALUES ($1, 'order', $2, $3, $4, nullif($5, ''), nullif($6, ''))`,
		m.EventID, m.OrderID, m.Type, string(payload), m.TraceParent, m.TraceState)
	if err != nil {
		return fmt.Errorf("outbox: storing the message of order %q, version %d: %w", m.OrderID, m.Version, err)
	}
	return nil
}
