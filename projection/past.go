package projection

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orderprojector/orderprojector/domain/order"
)

// Moment is an order as it was after one of its versions.
type Moment struct {
	Entry LedgerEntry
	// Order is the order then. While MoneyKnown is false only its State is
	// meant: a record that it takes to know the rest is gone.
	Order      order.Order
	MoneyKnown bool
	// Data is the event's data as written; nil when the record is gone, or the
	// version was skipped.
	Data []byte
	// Gone says that the record of this version is no longer in the log, or that
	// another one is in its place.
	Gone bool
}

// Past folds an order's ledger again, with the payloads that the log still
// has, into what the order was after each version. ledger begins with version 1; decisions are
// those that stand. The records are read from the topic that log names, in whichever partition.
func Past(ctx context.Context, log TopicPartition, ledger []LedgerEntry, decisions []OperatorDecision,
	records RecordReader, decoder Decoder,
) ([]Moment, error) {
	w := &work{decisions: decisions}
	envs := make(map[int64]*Envelope, len(ledger)) // by version
	wanted := map[int32]map[int64]*LedgerEntry{}
	for i := range ledger {
		e := &ledger[i]
		switch env := w.substituteOf(decoder, e); {
		case e.Skipped():
		case env != nil:
			envs[e.Version] = env
		default:
			if wanted[e.Partition] == nil {
				wanted[e.Partition] = map[int64]*LedgerEntry{}
			}
			wanted[e.Partition][e.Offset] = e
		}
	}
	for partition, entries := range wanted {
		offsets := make([]int64, 0, len(entries))
		for offset := range entries {
			offsets = append(offsets, offset)
		}
		slices.Sort(offsets)
		log.Partition = partition
		err := records.ReadRecords(ctx, log, offsets, func(rec Record) {
			e := entries[rec.Offset]
			if env, invalid := decode(decoder, &rec); e != nil && invalid == nil && isOf(&env, e) {
				envs[e.Version] = &env
			}
		})
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", log, err)
		}
	}
	return moments(ledger, envs), nil
}

func moments(ledger []LedgerEntry, envs map[int64]*Envelope) []Moment {
	all := make([]Moment, 0, len(ledger))
	current, known := order.Order{}, true
	for _, e := range ledger {
		m := Moment{Entry: e}
		env := envs[e.Version]
		switch {
		case e.Skipped():
		case env == nil || env.Event == nil:
			m.Gone, known = env == nil, false
		default:
			m.Data = env.Data
			next, err := order.Apply(current, env.Event)
			if known = known && err == nil && next.State == e.State; known {
				current = next
			}
		}
		current.State = e.State
		m.Order, m.MoneyKnown = current, known
		if !known {
			m.Order = order.Order{State: e.State}
		}
		all = append(all, m)
	}
	return all
}

// MomentAt returns how many of the moments lie at or before a time: the order's
// first versions, as far as each occurred by then. Order is by version, never by time: a version that says it occurred earlier
// than the one before it counts with that one. Skipped versions have no time.
func MomentAt(moments []Moment, at time.Time) int {
	n := 0
	for i := range moments {
		e := &moments[i].Entry
		if !e.Skipped() && e.OccurredAt.After(at) {
			break
		}
		n = i + 1
	}
	for n > 0 && moments[n-1].Entry.Skipped() && n < len(moments) {
		n-- // it was passed at some time before the next event, nobody knows when
	}
	return n
}
