package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// History is an order with its whole ledger and what operators decided about it.
type History struct {
	Order     Order
	Ledger    []projection.LedgerEntry // from version 1 on, archived entries too
	Decisions []projection.OperatorDecision
}

// History reads the history of an order. The error is ErrNotFound when nothing of it is applied.
func (r *Reader) History(ctx context.Context, orderID string) (History, error) {
	var h History
	err := r.snapshot(ctx, func(tx pgx.Tx) error {
		answer, err := readOrder(ctx, tx, orderID)
		if err != nil {
			return err
		}
		if answer.Order == nil {
			return ErrNotFound
		}
		h.Order = *answer.Order
		rows, err := tx.Query(ctx, sqlLedgerRead, orderID)
		if err != nil {
			return fmt.Errorf("reading order_events: %w", err)
		}
		h.Ledger, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e projection.LedgerEntry, err error) {
			var id string
			err = scanEntry(row, &id, &e)
			return e, err
		})
		if err != nil {
			return fmt.Errorf("reading order_events: %w", err)
		}
		if rows, err = tx.Query(ctx, sqlDecisionsRead, []string{orderID}); err != nil {
			return fmt.Errorf("reading operator_decisions: %w", err)
		}
		if h.Decisions, err = pgx.CollectRows(rows, scanDecision); err != nil {
			return fmt.Errorf("reading operator_decisions: %w", err)
		}
		return nil
	})
	return h, err
}
