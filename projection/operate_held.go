package projection

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// HeldSelection selects held records of the group: those of the IDs, of an order, or all.
type HeldSelection struct {
	IDs   []int64
	Order string
	All   bool
}

func (s HeldSelection) target() string {
	switch {
	case len(s.IDs) == 1:
		return heldTarget(s.IDs[0])
	case len(s.IDs) > 0:
		return fmt.Sprintf("%d held records", len(s.IDs))
	case s.Order != "":
		return orderTarget(s.Order)
	}
	return "all held records"
}

// HeldRetry is a held record that an operator wants to be tried at once.
type HeldRetry struct {
	ID      int64  `json:"id"`
	OrderID string `json:"order_id"`
	// BeingTried says that a member tries the record at this moment. The record was left alone.
	BeingTried bool `json:"being_tried,omitempty"`
}

// RetryHeld makes held records due at once. The head of each queue is tried next, whoever is behind it follows.
func (o *Operator) RetryHeld(ctx context.Context, s HeldSelection, by By) (retries []HeldRetry, err error) {
	if strings.TrimSpace(by.Actor) == "" {
		return nil, errNobody
	}
	err = o.do(ctx, true, true, func(a *action) error {
		if retries, err = a.MakeHeldDue(a.ctx, o.cfg.Group, s, by.Actor); err != nil {
			return fmt.Errorf("making held records due: %w", err)
		}
		due := map[int64]bool{}
		for _, r := range retries {
			due[r.ID] = true
		}
		for _, id := range s.IDs {
			if !due[id] {
				return o.noHeld(id)
			}
		}
		return a.Audit(a.ctx, AuditEntry{
			Actor: by.Actor, Action: "held.retry", Target: s.target(), Comment: by.Comment, After: map[string]any{"records": len(retries), "ids": s.IDs},
		})
	})
	return retries, err
}

func (o *Operator) noHeld(id int64) error {
	return &NotFoundError{fmt.Sprintf("held record %d of group %s", id, o.cfg.Group)}
}

func heldTarget(id int64) string { return fmt.Sprintf("held_record %d", id) }

// GiveUpRequest says how held records are to be given up.
type GiveUpRequest struct {
	// Blocks says that a letter holds its order back while its version is the next one: see HeldConfig.Blocks.
	Blocks  bool
	Execute bool
	By      By
}

// GaveUp is a held record that became a dead letter, or would become one.
type GaveUp struct {
	ID       int64  `json:"id"`
	OrderID  string `json:"order_id"`
	Version  int64  `json:"version,omitempty"`
	Blocks   bool   `json:"blocks"` // the letter holds the order back once its version is next
	Failures int    `json:"failures"`
	Cause    string `json:"cause"`
	// Behind is how many records of the queue are tried once this one is gone.
	Behind int64 `json:"behind"`
}

// GiveUpHeld makes held records dead letters, all in one transaction. Only the head of a queue can be given up: otherwise later
// records of the order would overtake an earlier one.
func (o *Operator) GiveUpHeld(ctx context.Context, ids []int64, req GiveUpRequest) (given []GaveUp, err error) {
	if req.Execute {
		if err := needComment(req.By); err != nil {
			return nil, err
		}
	}
	err = o.do(ctx, req.Execute, true, func(a *action) error {
		given, err = a.giveUpHeld(ids, req)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("giving held records up: %w", err)
	}
	return given, nil
}

func (a *action) giveUpHeld(ids []int64, req GiveUpRequest) ([]GaveUp, error) {
	group := a.o.cfg.Group
	held := make([]*HeldRecord, 0, len(ids))
	for _, id := range slices.Sorted(slices.Values(ids)) {
		h, err := a.LockHeld(a.ctx, group, id)
		if err != nil {
			return nil, fmt.Errorf("locking held record %d: %w", id, err)
		}
		if h == nil {
			return nil, a.o.noHeld(id)
		}
		held = append(held, h)
	}
	// Watermarks are locked in the order of the partitions, and a queue is given up from its head on.
	slices.SortFunc(held, func(x, y *HeldRecord) int {
		return cmp.Or(cmp.Compare(x.Record.Topic, y.Record.Topic), cmp.Compare(x.Record.Partition, y.Record.Partition),
			cmp.Compare(x.Record.Offset, y.Record.Offset))
	})
	given := make([]GaveUp, 0, len(held))
	entries := make([]AuditEntry, 0, len(held))
	for _, h := range held {
		before, behind, err := a.HeldAround(a.ctx, group, h)
		if err != nil {
			return nil, fmt.Errorf("reading the queue of held record %d: %w", h.ID, err)
		}
		if before > 0 {
			return nil, refusedf("give the head of the queue up first: orderprojector held list --order "+quoted(h.OrderID),
				"held record %d is not the head of its queue: %d records of order %s are before it", h.ID, before, quoted(h.OrderID))
		}
		detail := clip(fmt.Sprintf("given up by %s after %d failures: %s", req.By.Actor, h.Failures, h.Cause), 500)
		letter, err := GiveUp(a.ctx, a.OperatorTx, group, h, detail, req.Blocks)
		if err != nil {
			return nil, err
		}
		given = append(given, GaveUp{h.ID, h.OrderID, h.Version, letter.Blocks, h.Failures, h.Cause, behind})
		entries = append(entries, AuditEntry{
			Actor: req.By.Actor, Action: "held.give_up", Target: heldTarget(h.ID), Comment: req.By.Comment,
			Before: map[string]any{
				"order_id": h.OrderID, "version": h.Version, "topic": h.Record.Topic, "partition": h.Record.Partition, "offset": h.Record.Offset,
				"failures": h.Failures, "cause": h.Cause,
			},
			After: map[string]any{"place": "dead letter"},
		})
	}
	return given, a.Audit(a.ctx, entries...)
}
