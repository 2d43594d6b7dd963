package projection_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

// Ranges implements projection.Log.
func (w *world) Ranges(context.Context, string) ([]projection.LogRange, error) {
	ranges := make([]projection.LogRange, len(w.logs))
	for p, log := range w.logs {
		ranges[p] = projection.LogRange{TopicPartition: w.tp(int32(p))}
		if len(log) > 0 {
			ranges[p].Until = log[len(log)-1].Offset + 1
		}
	}
	return ranges, nil
}

// ReadRange implements projection.Log.
func (w *world) ReadRange(_ context.Context, r projection.LogRange, fn func(projection.Record) error) error {
	for _, rec := range w.logs[r.Partition] {
		if rec.Control || rec.Offset < r.From || rec.Offset >= r.Until {
			continue
		}
		if err := fn(rec); err != nil {
			return err
		}
	}
	return nil
}

// operate lets an operator do something, sensible or not. What is refused
// changes nothing.
func (w *world) operate(t testing.TB) {
	operator, err := projection.NewOperator(projection.OperatorConfig{
		Group: simGroup, Topic: w.topic, Store: w.store, Older: w, Log: w, RetryBase: 1, RetryCap: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.rnd.IntN(4) == 0 { // its connection may be lost, too
		w.store.BeforeCommit = func() error {
			if w.rnd.IntN(3) == 0 {
				return projectiontest.ErrConnection
			}
			return nil
		}
		w.store.AfterCommit = w.store.BeforeCommit
		defer func() { w.store.BeforeCommit, w.store.AfterCommit = nil, nil }()
	}
	by := projection.By{Actor: "sim", Comment: "because"}
	execute := w.rnd.IntN(8) > 0
	err = w.act(t.Context(), operator, execute, by)
	var refused *projection.RefusedError
	var missing *projection.NotFoundError
	if err != nil && !errors.As(err, &refused) && !errors.As(err, &missing) && !errors.Is(err, projectiontest.ErrConnection) && !errors.Is(err, projectiontest.ErrRaised) {
		t.Fatal(err)
	}
}

func (w *world) act(ctx context.Context, operator *projection.Operator, execute bool, by projection.By) error {
	letters := w.store.Letters()
	orderID := fmt.Sprintf("o-%d", w.rnd.IntN(4))
	action := w.rnd.IntN(10)
	if len(letters) == 0 && action < 6 {
		action = 6
	}
	switch action {
	case 0, 1:
		l := letters[w.rnd.IntN(len(letters))]
		_, err := operator.Discard(ctx, l.ID, projection.DiscardRequest{Skip: w.rnd.IntN(3) > 0, Execute: execute, By: by})
		return err
	case 2:
		_, err := operator.Redrive(ctx, projection.RedriveRequest{
			Selection: projection.LetterSelection{All: true}, Execute: execute, By: by, MaxFailureRatio: 1, MaxAttempts: 1 + w.rnd.IntN(5),
		})
		return err
	case 3, 4:
		l := letters[w.rnd.IntN(len(letters))]
		version := int(l.Version)
		if version == 0 {
			version = 1 + w.rnd.IntN(6)
		}
		if l.OrderID != "" {
			orderID = l.OrderID
		}
		variant := []string{"", "", "content", "id", "illegal", "unknown", "money"}[w.rnd.IntN(7)]
		_, err := operator.Redrive(ctx, projection.RedriveRequest{
			Selection: projection.LetterSelection{IDs: []int64{l.ID}}, Execute: execute, By: by,
			Substitute: simEvent(orderID, version, variant, w.rnd.IntN(2) == 0),
		})
		return err
	case 5:
		_, err := operator.Restore(ctx, letters[w.rnd.IntN(len(letters))].ID, by)
		return err
	case 6:
		row := w.store.AllRows()[orderID]
		if row == nil {
			return nil
		}
		_, err := operator.AcceptGap(ctx, orderID, row.Version+1, row.Version+1+int64(w.rnd.IntN(2)), execute, by)
		return err
	case 7:
		_, failed, err := operator.RepairGaps(ctx, []string{orderID}, execute, by)
		if err == nil {
			err = failed[orderID]
		}
		return err
	case 8:
		decisions := w.store.Decisions()
		if len(decisions) == 0 {
			return nil
		}
		_, _, err := operator.Undo(ctx, decisions[w.rnd.IntN(len(decisions))].ID, execute, by)
		return err
	default:
		if w.store.AllRows()[orderID] == nil {
			return nil
		}
		_, err := operator.Reproject(ctx, orderID, execute, by)
		return err
	}
}
