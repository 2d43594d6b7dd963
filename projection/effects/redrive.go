package effects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// redrivePage is how many letters are looked up at once.
const redrivePage = 500

// Redrive decides dead letters of the group again, each in a transaction of its own, with the decoder and the effect as
// they are now. What is consumed or does not concern the consumer any more closes its letter; what is refused again, or fails,
// leaves it open with one attempt more. Every letter tried is one row in the audit log.
//
// There is no job to resume: what was redriven is not open any more, so it is simply done again. Substitutes are for the
// projection alone. The report says how far it came, with an error too.
func (c *Consumer[T]) Redrive(ctx context.Context, req projection.RedriveRequest) (projection.RedriveReport, error) {
	if req.MaxAttempts <= 0 {
		req.MaxAttempts = projection.DefaultMaxAttempts
	}
	if req.MaxFailureRatio <= 0 {
		req.MaxFailureRatio = projection.DefaultMaxFailureRatio
	}
	r := &redrive[T]{consumer: c, req: req, report: projection.RedriveReport{Outcomes: map[string]int64{}}, began: time.Now()}
	switch {
	case req.By.Actor == "":
		return r.report, errors.New("redriving dead letters: nobody is named who does it")
	case req.Resume != 0:
		return r.report, &projection.RefusedError{Reason: "letters of " + c.cfg.Effect.Name() + " have no redrive jobs", Advice: "name the letters again: those that were redriven are not open any more"}
	case req.Substitute != nil:
		return r.report, &projection.RefusedError{Reason: "a letter of " + c.cfg.Effect.Name() + " cannot have a substitute", Advice: "have the event published again as it should be"}
	}
	if err := r.run(ctx); err != nil {
		return r.report, fmt.Errorf("redriving dead letters: %w", err)
	}
	return r.report, nil
}

type redrive[T Tx] struct {
	consumer *Consumer[T]
	req      projection.RedriveRequest
	report   projection.RedriveReport
	began    time.Time
}

func (r *redrive[T]) run(ctx context.Context) error {
	c, newest := r.consumer, int64(0)
	err := c.in(ctx, func(ctx context.Context, tx T) (err error) {
		if err := c.claim(ctx, tx); err != nil {
			return err
		}
		if r.report.Selected, newest, err = tx.CountLetters(ctx, c.cfg.Group, r.req.Selection); err != nil {
			return err
		}
		if missing := int64(len(r.req.Selection.IDs)) - r.report.Selected; missing > 0 {
			return &projection.NotFoundError{What: fmt.Sprintf("%d of the dead letters, as open ones of group %s", missing, c.cfg.Group)}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for after := projection.BeforeAllTurns(); ; {
		var page []projection.LetterTurn
		err := c.in(ctx, func(ctx context.Context, tx T) (err error) {
			page, err = tx.SelectLetters(ctx, c.cfg.Group, r.req.Selection, newest, after, redrivePage)
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, turn := range page {
			if err := r.one(ctx, turn.ID); err != nil {
				return err
			}
			if r.report.Tried >= 20 && float64(r.report.Refused) > r.req.MaxFailureRatio*float64(r.report.Tried) {
				r.report.Stopped = fmt.Sprintf("%d of %d letters were refused again", r.report.Refused, r.report.Tried)
				return nil
			}
			if err := r.pace(ctx); err != nil {
				return err
			}
		}
		after = page[len(page)-1]
	}
}

// in runs work in one transaction with a deadline.
func (c *Consumer[T]) in(ctx context.Context, work func(context.Context, T) error) error {
	return c.retrier.Bounded(ctx, func(ctx context.Context) error { return c.cfg.Store.InTx(ctx, work) })
}

func (r *redrive[T]) pace(ctx context.Context) error {
	if r.req.Rate <= 0 {
		return context.Cause(ctx)
	}
	due := r.began.Add(time.Duration(float64(r.report.Tried) / r.req.Rate * float64(time.Second)))
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(due)):
		return nil
	}
}

// one decides one letter again.
func (r *redrive[T]) one(ctx context.Context, id int64) error {
	job := &letterJob[T]{redrive: r, id: id, left: 1, seen: older{}}
	retrier := r.consumer.retrier
	return retrier.Run(ctx, retrier.Limited(r.consumer.log, redriveTries), job)
}

// redriveTries is how often a letter is tried while the failure is one that passes.
const redriveTries = 8

// letterJob decides one letter again: a job of one piece.
type letterJob[T Tx] struct {
	redrive *redrive[T]
	id      int64
	left    int
	seen    older
}

// What implements projection.Job.
func (j *letterJob[T]) What(int) string { return fmt.Sprintf("redriving dead letter %d", j.id) }

// Left implements projection.Job.
func (j *letterJob[T]) Left() int { return j.left }

// Suspect implements projection.Job.
func (j *letterJob[T]) Suspect(context.Context, int, projection.Failure, error) int { return 0 }

// Answer implements projection.Job.
func (j *letterJob[T]) Answer(ctx context.Context, err error) (bool, error) {
	return j.redrive.consumer.answer(ctx, err, j.seen)
}

// Try implements projection.Job.
func (j *letterJob[T]) Try(ctx context.Context, _ int) error { return j.try(ctx, nil) }

func (j *letterJob[T]) try(ctx context.Context, blame error) error {
	r := j.redrive
	var result projection.RedriveResult
	err := r.consumer.cfg.Store.InTx(ctx, func(ctx context.Context, tx T) (err error) {
		if result, err = r.decide(ctx, tx, j.id, j.seen, blame); err == nil && !r.req.Execute {
			return errDryRun
		}
		return err
	})
	if err == nil || errors.Is(err, errDryRun) {
		j.left = 0
		r.count(result)
		return nil
	}
	return err
}

// Alone implements projection.Job: the letter stays open with one attempt more.
func (j *letterJob[T]) Alone(ctx context.Context, class projection.Failure, cause error) error {
	if _, failed := isOneOf[*failedError](cause); !failed && class != projection.BadData {
		return cause
	}
	return j.redrive.consumer.retrier.Bounded(ctx, func(ctx context.Context) error { return j.try(ctx, cause) })
}

func (r *redrive[T]) decide(ctx context.Context, tx T, id int64, seen older, blame error) (projection.RedriveResult, error) {
	c := r.consumer
	result := projection.RedriveResult{LetterID: id}
	locked, err := tx.LockLetters(ctx, []int64{id})
	if err != nil {
		return result, err
	}
	letters, err := tx.Letters(ctx, c.cfg.Group, []int64{id})
	state, found := locked[id]
	if err != nil || !found || len(letters) == 0 || !state.Status.Waits() {
		result.Status, result.Attempts = state.Status, state.Attempts // closed by somebody else meanwhile
		return result, err
	}
	letter := letters[0]
	result.OrderID, result.Version, result.EventID = letter.OrderID, letter.Version, letter.EventID
	it := c.newItem(&letter.Record)
	failed, isFailed := isOneOf[*failedError](blame)
	if blame != nil {
		it.blame(blame)
	} else if err := c.decide(ctx, tx, []*item{&it}, seen); err != nil {
		return result, err
	}
	change := projection.LetterChange{ID: id, Status: projection.LetterRedriven, Attempts: state.Attempts}
	result.Outcome = it.outcome.String()
	if isFailed {
		result.Outcome, it.outcome, it.detail = "failed", letter.Reason, "its effect failed: "+failed.Error()
	}
	if it.outcome.DeadLetters() {
		change.Attempts++
		change.Status = projection.LetterOpen
		if change.Attempts >= r.req.MaxAttempts {
			change.Status = projection.LetterExhausted
		}
		change.Refused, result.Detail = it.letter(c.cfg.Group), it.detail
	}
	result.Status, result.Attempts = change.Status, change.Attempts
	if err := tx.ChangeLetters(ctx, []projection.LetterChange{change}); err != nil {
		return result, err
	}
	return result, tx.Audit(ctx, projection.AuditEntry{
		Actor: r.req.By.Actor, Action: "dlq.redrive", Target: fmt.Sprintf("dead_letter %d", id), Comment: r.req.By.Comment,
		Before: map[string]any{"status": state.Status, "attempts": state.Attempts},
		After:  map[string]any{"status": change.Status, "attempts": change.Attempts, "outcome": result.Outcome, "consumer": c.cfg.Effect.Name()},
	})
}

func (r *redrive[T]) count(result projection.RedriveResult) {
	r.report.Tried++
	if result.Outcome != "" {
		r.report.Outcomes[result.Outcome]++
		if result.Refused() {
			r.report.Refused++
			if result.Status == projection.LetterExhausted {
				r.report.Exhausted++
			}
		} else {
			r.report.Redriven++
		}
	}
	if r.req.Each != nil {
		r.req.Each(result)
	}
}
