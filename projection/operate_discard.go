package projection

import (
	"context"
	"fmt"
)

// DiscardRequest says how a letter is to be discarded.
type DiscardRequest struct {
	// Skip passes the letter's version, if its order waits for it or will: by a decision that stands until it is undone.
	Skip    bool
	Execute bool
	By      By
}

// DiscardResult is what discarding a letter did, or would do.
type DiscardResult struct {
	LetterID int64        `json:"letter_id"`
	Was      LetterStatus `json:"was"`
	Already  bool         `json:"already,omitempty"` // it was discarded before: nothing was done
	// Decision is the skip that was stored, nil when there was no need for one.
	DecisionID int64     `json:"decision_id,omitempty"`
	Skipped    int64     `json:"skipped_version,omitempty"`
	Before     *Standing `json:"before,omitempty"`
	After      *Standing `json:"after,omitempty"`
	// Cascade is what becomes of the events parked behind the version, in the order of their turns.
	Cascade []DrainedEvent `json:"cascade,omitempty"`
}

// Discard closes a letter that nobody will decide again; its bytes are kept,
// and Restore opens it. A letter that holds its order back, now or once its version is
// next, is refused unless the version is to be skipped.
func (o *Operator) Discard(ctx context.Context, id int64, req DiscardRequest) (DiscardResult, error) {
	var result DiscardResult
	if err := needComment(req.By); err != nil {
		return result, err
	}
	err := o.do(ctx, req.Execute, true, func(a *action) error {
		result = DiscardResult{LetterID: id}
		return a.discard(&result, req)
	})
	if err != nil {
		return result, fmt.Errorf("discarding dead letter %d: %w", id, err)
	}
	return result, nil
}

func (a *action) discard(result *DiscardResult, req DiscardRequest) error {
	letter, err := a.letter(result.LetterID)
	if err != nil {
		return err
	}
	*a.log = letter.Record.TopicPartition
	var row *Row
	if letter.Blocks {
		if row, err = a.row(letter.OrderID); err != nil {
			return err
		}
		before := standing(row)
		result.Before = &before
	}
	// The letter as it is now that nobody else can change it.
	if letter, err = a.lockLetter(letter.ID); err != nil {
		return err
	}
	result.Was = letter.Status
	switch {
	case letter.Blocks && row == nil:
		return errGuardMissed // it was redriven meanwhile

	case letter.Status == LetterDiscarded:
		result.Already, result.After = true, result.Before
		return nil
	case !letter.Status.Waits():
		return refusedf("there is nothing to discard", "it is %s", letter.Status)
	}
	change := LetterChange{ID: letter.ID, Status: LetterDiscarded, Attempts: letter.Attempts, ClosedBy: &req.By}
	if err := a.ChangeLetters(a.ctx, []LetterChange{change}); err != nil {
		return fmt.Errorf("closing the letter: %w", err)
	}
	entry := AuditEntry{
		Actor: req.By.Actor, Action: "dlq.discard", Target: letterTarget(letter.ID), Comment: req.By.Comment,
		Before: map[string]any{"status": letter.Status, "order": result.Before}, After: map[string]any{"status": LetterDiscarded},
	}
	if row == nil || !letter.Blocks || letter.Version <= row.Version {
		result.After = result.Before
		return a.Audit(a.ctx, entry)
	}
	if !req.Skip {
		return refusedf("correct it (dlq redrive ID --with FILE), or pass its version with --skip",
			"it holds order %s back at version %d", quoted(letter.OrderID), letter.Version)
	}
	d := OperatorDecision{
		OrderID: letter.OrderID, Kind: DecisionSkip, From: letter.Version, To: letter.Version, LetterID: letter.ID,
		Log: letter.Record.TopicPartition, Offset: letter.Record.Offset, Digest: RecordDigest(&letter.Record), By: req.By,
	}
	t, w, err := a.decideAndTurn(&d)
	if err != nil {
		return err
	}
	if err := a.finish(t); err != nil {
		return err
	}
	after := standing(w.row)
	result.DecisionID, result.Skipped, result.After, result.Cascade = d.ID, letter.Version, &after, *t.drained
	entry.After = map[string]any{"status": LetterDiscarded, "decision": d.ID, "skipped_version": letter.Version, "order": after}
	return a.Audit(a.ctx, entry)
}

// decideAndTurn stores a decision, and lets it take effect as far as the turn of its version has come.
func (a *action) decideAndTurn(d *OperatorDecision) (*turn, *work, error) {
	if err := a.checkDecided(d); err != nil {
		return nil, nil, err
	}
	if err := a.AddDecision(a.ctx, d); err != nil {
		return nil, nil, fmt.Errorf("storing the decision: %w", err)
	}
	return a.turn(d.OrderID, nil)
}

// checkDecided refuses a decision that would repeat one.
func (a *action) checkDecided(d *OperatorDecision) error {
	all, err := a.Decisions(a.ctx, []string{d.OrderID})
	if err != nil {
		return fmt.Errorf("reading operators' decisions: %w", err)
	}
	for _, other := range all[d.OrderID] {
		same := other.Kind != DecisionSubstitute && d.Kind != DecisionSubstitute && other.From <= d.To && d.From <= other.To
		if d.Kind == DecisionSubstitute && other.passes(d.From) {
			same = true
		} else if d.Kind == DecisionSubstitute && other.Kind == d.Kind && other.Digest == d.Digest && other.From == d.From {
			same = !d.ByCoordinates && !other.ByCoordinates || other.Log == d.Log && other.Offset == d.Offset
		}
		if same {
			return refusedf(fmt.Sprintf("decisions undo %d takes it back", other.ID), "decision %d (%s, versions %d to %d) says so already",
				other.ID, other.Kind, other.From, other.To)
		}
	}
	return nil
}

// letter reads a letter without locking it.
func (a *action) letter(id int64) (*Letter, error) {
	letters, err := a.Letters(a.ctx, a.o.cfg.Group, []int64{id})
	if err != nil {
		return nil, fmt.Errorf("reading dead letter %d: %w", id, err)
	}
	if len(letters) == 0 {
		return nil, &NotFoundError{fmt.Sprintf("dead letter %d of group %s", id, a.o.cfg.Group)}
	}
	return letters[0], nil
}

// lockLetter locks a letter and reads it as it is then.
func (a *action) lockLetter(id int64) (*Letter, error) {
	if _, err := a.LockLetters(a.ctx, []int64{id}); err != nil {
		return nil, fmt.Errorf("locking dead letter %d: %w", id, err)
	}
	return a.letter(id)
}

func letterTarget(id int64) string { return fmt.Sprintf("dead_letter %d", id) }

func orderTarget(id string) string { return "order " + id }

// Restore opens a discarded letter again. One whose version its order has passed
// since, or is to skip, is refused: it would be closed at once.
func (o *Operator) Restore(ctx context.Context, id int64, by By) (Standing, error) {
	var after Standing
	if err := needComment(by); err != nil {
		return after, err
	}
	err := o.do(ctx, true, false, func(a *action) error {
		var err error
		after, err = a.restore(id, by)
		return err
	})
	if err != nil {
		return after, fmt.Errorf("restoring dead letter %d: %w", id, err)
	}
	return after, nil
}

func (a *action) restore(id int64, by By) (after Standing, err error) {
	letter, err := a.letter(id)
	if err != nil {
		return after, err
	}
	*a.log = letter.Record.TopicPartition
	var row *Row
	if letter.Blocks {
		if row, err = a.row(letter.OrderID); err != nil {
			return after, err
		}
		after = standing(row)
	}
	if letter, err = a.lockLetter(id); err != nil {
		return after, err
	}
	if letter.Blocks && row == nil {
		return after, errGuardMissed // it was redriven meanwhile
	}
	if letter.Status != LetterDiscarded {
		return after, refusedf("only discarded letters are restored", "it is %s", letter.Status)
	}
	if letter.Blocks {
		decisions, err := a.Decisions(a.ctx, []string{letter.OrderID})
		if err != nil {
			return after, fmt.Errorf("reading operators' decisions: %w", err)
		}
		for _, d := range decisions[letter.OrderID] {
			if d.passes(letter.Version) {
				return after, refusedf(fmt.Sprintf("decisions undo %d takes the skip back and opens the letter", d.ID),
					"version %d of order %s was skipped by decision %d", letter.Version, quoted(letter.OrderID), d.ID)
			}
		}
		if letter.Version <= row.Version {
			return after, refusedf("the letter would be closed as superseded at once",
				"order %s has passed version %d since", quoted(letter.OrderID), letter.Version)
		}
	}
	change := LetterChange{ID: id, Status: LetterOpen, Attempts: letter.Attempts}
	if err := a.ChangeLetters(a.ctx, []LetterChange{change}); err != nil {
		return after, fmt.Errorf("opening the letter: %w", err)
	}
	if row != nil {
		t, w, err := a.turn(letter.OrderID, nil)
		if err != nil {
			return after, err
		}
		if err := a.finish(t); err != nil {
			return after, err
		}
		after = standing(w.row)
	}
	return after, a.Audit(a.ctx, AuditEntry{
		Actor: by.Actor, Action: "dlq.restore", Target: letterTarget(id), Comment: by.Comment,
		Before: map[string]any{"status": letter.Status}, After: map[string]any{"status": LetterOpen},
	})
}
