package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// GapResult is what was done about the gap of an order, or would be done.
type GapResult struct {
	Before     Standing `json:"before"`
	After      Standing `json:"after"`
	DecisionID int64    `json:"decision_id,omitempty"`
	// Found are the records of missing versions that the log holds, and what became of them.
	Found []FoundEvent `json:"found,omitempty"`
	// Drained are the events that were parked behind the gap and whose turn came.
	Drained []DrainedEvent `json:"drained,omitempty"`
}

// FoundEvent is a record of a missing version that was found in the log.
type FoundEvent struct {
	Version   int64  `json:"version"`
	EventID   string `json:"event_id"`
	Partition int32  `json:"kafka_partition"`
	Offset    int64  `json:"kafka_offset"`
	Outcome   string `json:"outcome"`
	Detail    string `json:"detail,omitempty"`
}

// AcceptGap decides that versions which never came are passed: from the next one
// of the order up to `to`, all of them missing. What is parked behind them is decided at once.
func (o *Operator) AcceptGap(ctx context.Context, orderID string, from, to int64, execute bool, by By) (GapResult, error) {
	var result GapResult
	if err := needComment(by); err != nil {
		return result, err
	}
	err := o.do(ctx, execute, false, func(a *action) error {
		result = GapResult{}
		return a.acceptGap(&result, orderID, from, to, by)
	})
	if err != nil {
		return result, fmt.Errorf("accepting the gap of order %s: %w", quoted(orderID), err)
	}
	return result, nil
}

func (a *action) acceptGap(result *GapResult, orderID string, from, to int64, by By) error {
	row, missing, err := a.gapOf(orderID)
	if err != nil {
		return err
	}
	result.Before = standing(row)
	const advice = "gaps list shows what is missing"
	switch {
	case from != missing.From || to < from:
		return refusedf(advice, "versions %d to %d are not next: the order waits for version %d", from, to, missing.From)
	case to > missing.To:
		return refusedf(advice, "version %d is not missing: missing are %d to %d", to, missing.From, missing.To)
	case to-from >= MaxDecidedVersions:
		return refusedf("what is so far ahead is more likely a wrong version in an event: see orders timeline",
			"%d versions are more than the %d that one decision can pass", to-from+1, MaxDecidedVersions)
	}
	d := OperatorDecision{OrderID: orderID, Kind: DecisionAcceptGap, From: from, To: to, By: by}
	t, w, err := a.decideAndTurn(&d)
	if err != nil {
		return err
	}
	if err := a.finish(t); err != nil {
		return err
	}
	result.After, result.Drained, result.DecisionID = standing(w.row), *t.drained, d.ID
	return a.Audit(a.ctx, AuditEntry{
		Actor: by.Actor, Action: "gaps.accept", Target: orderTarget(orderID), Comment: by.Comment, Before: result.Before,
		After: map[string]any{"decision": d.ID, "from_version": from, "to_version": to, "order": result.After},
	})
}

// versions is a range of versions, both inclusive.
type versions struct{ From, To int64 }

// gapOf locks an order and finds the versions that it waits for: neither applied, nor parked, nor refused.
func (a *action) gapOf(orderID string) (*Row, versions, error) {
	rows, err := a.Rows(a.ctx, []string{orderID})
	if err != nil {
		return nil, versions{}, fmt.Errorf("reading the order: %w", err)
	}
	if rows[orderID] == nil { // to lock it would make it exist
		return nil, versions{}, &NotFoundError{"order " + quoted(orderID)}
	}
	row, err := a.row(orderID)
	if err != nil {
		return nil, versions{}, err
	}
	stuck, err := a.Stuck(a.ctx, []string{orderID})
	if err != nil {
		return nil, versions{}, fmt.Errorf("reading what holds the order back: %w", err)
	}
	s := stuck[orderID]
	if s == nil || s.FirstParked == 0 {
		return nil, versions{}, refusedf("", "it does not wait for anything")
	}
	gap := versions{row.Version + 1, s.FirstParked - 1}
	for _, l := range s.Letters {
		if l.Version == gap.From {
			return nil, versions{}, refusedf("see dlq show, dlq redrive and dlq discard --skip",
				"version %d is not missing: it is dead letter %d", l.Version, l.ID)
		}
		if l.Version > row.Version {
			gap.To = min(gap.To, l.Version-1)
		}
	}
	if gap.To < gap.From {
		return nil, versions{}, refusedf("the next sweep drains it", "version %d is there already, parked", gap.From)
	}
	return row, gap, nil
}

// repairBytes bounds the records that one repair keeps in memory.
const repairBytes = 64 << 20

// RepairGaps reads the topic again for the versions that these orders wait for, and decides what it
// finds below the watermarks. Every order gets an answer: its result, or why there is none.
func (o *Operator) RepairGaps(ctx context.Context, orderIDs []string, execute bool, by By) (map[string]GapResult, map[string]error, error) {
	if err := needComment(by); err != nil {
		return nil, nil, err
	}
	if o.cfg.Log == nil {
		return nil, nil, errors.New("the topic cannot be read")
	}
	failed := make(map[string]error)
	missing := make(map[string]versions)
	for _, id := range orderIDs {
		err := o.do(ctx, false, true, func(a *action) error {
			_, gap, err := a.gapOf(id)
			missing[id] = gap
			return err
		})
		if err != nil {
			delete(missing, id)
			failed[id] = err
			if ctx.Err() != nil {
				return nil, failed, err
			}
		}
	}
	found, err := o.search(ctx, missing)
	if err != nil {
		return nil, failed, fmt.Errorf("looking for missing versions: %w", err)
	}
	results := make(map[string]GapResult)
	for _, id := range slices.Sorted(maps.Keys(missing)) {
		var result GapResult
		err := o.do(ctx, execute, false, func(a *action) error {
			result = GapResult{}
			return a.repairGap(&result, id, found[id], by)
		})
		if err != nil {
			failed[id] = err
			continue
		}
		results[id] = result
	}
	return results, failed, nil
}

// search reads the topic and keeps the records of missing versions.
func (o *Operator) search(ctx context.Context, missing map[string]versions) (map[string][]Record, error) {
	if len(missing) == 0 {
		return nil, nil
	}
	ranges, err := o.cfg.Log.Ranges(ctx, o.cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("reading the topic's bounds: %w", err)
	}
	found := make(map[string][]Record)
	size := 0
	for _, r := range ranges {
		err := o.cfg.Log.ReadRange(ctx, r, func(rec Record) error {
			if rec.Value == nil {
				return nil
			}
			if rec.Key != nil {
				if _, ok := missing[string(rec.Key)]; !ok {
					return nil
				}
			}
			it := newItem(o.cfg.Decoder, &rec)
			if gap, ok := missing[it.orderID]; ok && gap.From <= it.version() && it.version() <= gap.To {
				found[it.orderID] = append(found[it.orderID], rec)
				if size += len(rec.Value); size > repairBytes {
					return refusedf("repair fewer orders at once", "the log holds more than %d MiB of what is missing", repairBytes>>20)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", r.TopicPartition, err)
		}
	}
	return found, nil
}

func (a *action) repairGap(result *GapResult, orderID string, found []Record, by By) error {
	// What is not read yet comes by itself, in its turn: to take it out of turn
	// could make another order of things out of the same log.
	var marks map[int32]int64
	var err error
	if len(found) > 0 {
		if marks, err = a.LockWatermarks(a.ctx, a.o.cfg.Group, a.o.cfg.Topic, found[0].TopicID); err != nil {
			return fmt.Errorf("locking the watermarks: %w", err)
		}
	}
	row, _, err := a.gapOf(orderID)
	if err != nil {
		return err
	}
	result.Before, result.After = standing(row), standing(row)
	if len(found) == 0 {
		return refusedf("gaps accept passes versions that are lost", "the log does not hold version %d", row.Version+1)
	}
	var items []*item
	for i := range found {
		if rec := &found[i]; rec.Offset < marks[rec.Partition] {
			it := newItem(a.o.cfg.Decoder, rec)
			items = append(items, &it)
			*a.log = rec.TopicPartition
		}
	}
	if len(items) == 0 {
		rec := &found[0]
		return refusedf("it is applied when the members get there: see offsets show",
			"the log holds it at partition %d offset %d, which is not read yet (the watermark is %d)", rec.Partition, rec.Offset, marks[rec.Partition])
	}
	slices.SortStableFunc(items, func(x, y *item) int { return cmp.Compare(x.version(), y.version()) })
	t, w, err := a.turn(orderID, items)
	if err != nil {
		return err
	}
	for _, it := range items {
		letters := len(w.letters)
		if err := t.decideItem(a.ctx, w, it); err != nil {
			return err
		}
		f := FoundEvent{
			Version: it.version(), EventID: it.env.EventID, Partition: it.rec.Partition, Offset: it.rec.Offset, Outcome: it.outcome.String(),
		}
		if it.outcome.DeadLetters() && len(w.letters) > letters {
			f.Detail = w.letters[letters].Detail
		}
		result.Found = append(result.Found, f)
	}
	if err := a.finish(t); err != nil {
		return err
	}
	result.After, result.Drained = standing(w.row), *t.drained
	return a.Audit(a.ctx, AuditEntry{
		Actor: by.Actor, Action: "gaps.repair", Target: orderTarget(orderID), Comment: by.Comment,
		Before: result.Before, After: map[string]any{"found": result.Found, "order": result.After},
	})
}
