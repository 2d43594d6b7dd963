package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Defaults of RedriveRequest.
const (
	DefaultMaxAttempts     = 5
	DefaultMaxFailureRatio = 0.5
	// minRedrives is how many letters a redrive tries before it judges by the ratio of failures.
	minRedrives = 20

	redrivePage  = 500 // letters that are looked up at once
	redriveChunk = 32  // letters of one order in one transaction: their records are in memory
)

// RedriveRequest says which letters are decided again, and how.
type RedriveRequest struct {
	Selection LetterSelection
	// Resume continues the stored job of that ID instead of beginning with Selection.
	Resume  int64
	Execute bool
	By      By // a comment is welcome, not required
	// Substitute stands in for the record of the only letter selected, as plain JSON; nil for the record itself.
	Substitute []byte

	MaxAttempts     int     // a letter that was refused so often is exhausted
	MaxFailureRatio float64 // stops when more are refused again, after at least 20
	Rate            float64 // letters per second; 0 for as fast as possible
	// Each is called for every letter, in the order of their turns; nil for nobody.
	Each func(RedriveResult)
}

// RedriveResult is what deciding a letter again did, or would do.
type RedriveResult struct {
	LetterID int64        `json:"letter_id"`
	OrderID  string       `json:"order_id"`
	Version  int64        `json:"version"`
	EventID  string       `json:"event_id"`
	Outcome  string       `json:"outcome"` // of the decision; empty when the letter was closed by somebody else meanwhile
	Status   LetterStatus `json:"status"`
	Attempts int          `json:"attempts"`
	Detail   string       `json:"detail,omitempty"` // why it was refused again
	// Drained are the events that were parked behind the letter and whose turn came.
	Drained []DrainedEvent `json:"drained,omitempty"`
	After   *Standing      `json:"after,omitempty"` // of the order
}

// Refused reports whether the letter was refused again.
func (r *RedriveResult) Refused() bool { return r.Outcome != "" && r.Status.Waits() }

// RedriveReport sums a redrive up.
type RedriveReport struct {
	JobID     int64            `json:"job_id,omitempty"` // 0 for a dry run
	Selected  int64            `json:"selected"`         // as counted at the start
	Tried     int64            `json:"tried"`
	Redriven  int64            `json:"redriven"`
	Refused   int64            `json:"refused"`
	Exhausted int64            `json:"exhausted"` // of the refused ones
	Outcomes  map[string]int64 `json:"outcomes"`
	Stopped   string           `json:"stopped,omitempty"` // why it stopped itself
}

// redrive is one run of a redrive.
type redrive struct {
	o      *Operator
	req    RedriveRequest
	job    RedriveJob
	report RedriveReport
	began  time.Time
}

// Redrive decides letters again, with the decoder and the rules as they are now:
// an order's letters one after another by version, each on the order's locked
// row. What is applied, repeated or parked closes its letter; what is refused again leaves it open, with one
// attempt more. Nothing is published.
//
// The selection is frozen when it begins, and progress is stored with each
// step, so that an interrupted redrive can be resumed. Its error is ctx's when it was interrupted;
// the report says how far it has come.
func (o *Operator) Redrive(ctx context.Context, req RedriveRequest) (RedriveReport, error) {
	if req.MaxAttempts <= 0 {
		req.MaxAttempts = DefaultMaxAttempts
	}
	if req.MaxFailureRatio <= 0 {
		req.MaxFailureRatio = DefaultMaxFailureRatio
	}
	r := &redrive{o: o, req: req, report: RedriveReport{Outcomes: map[string]int64{}}, began: time.Now()}
	if err := r.start(ctx); err != nil {
		return r.report, fmt.Errorf("starting the redrive: %w", err)
	}
	if err := r.run(ctx); err != nil {
		return r.report, fmt.Errorf("redriving dead letters: %w", err)
	}
	return r.report, nil
}

func (r *redrive) start(ctx context.Context) error {
	if r.req.By.Actor == "" {
		return errors.New("nobody is named who does it")
	}
	s := r.req.Selection
	if r.req.Resume == 0 && len(s.IDs) == 0 && s.Reason == "" && s.Order == "" && s.Topic == "" && s.Since.IsZero() && s.Until.IsZero() && !s.All {
		return refusedf("name letters, a filter, or all", "nothing is selected")
	}
	if r.req.Substitute != nil && (len(s.IDs) != 1 || r.req.Resume != 0) {
		return refusedf("name the one letter", "a substitute is for exactly one letter")
	}
	return r.o.do(ctx, true, false, func(a *action) error {
		if r.req.Resume != 0 {
			job, found, err := a.LockRedriveJob(a.ctx, r.req.Resume)
			switch {
			case err != nil:
				return fmt.Errorf("reading the job: %w", err)
			case !found || job.Group != r.o.cfg.Group:
				return &NotFoundError{fmt.Sprintf("redrive job %d of group %s", r.req.Resume, r.o.cfg.Group)}
			case job.Status == RedriveDone:
				return refusedf("start a new one for what is open now", "job %d is done", job.ID)
			}
			r.job, r.report.JobID = job, job.ID
			letters, _, err := a.CountLetters(a.ctx, r.o.cfg.Group, job.Selection)
			r.report.Selected = letters
			return err
		}
		letters, newest, err := a.CountLetters(a.ctx, r.o.cfg.Group, s)
		if err != nil {
			return fmt.Errorf("counting the letters: %w", err)
		}
		r.report.Selected = letters
		r.job = RedriveJob{Group: r.o.cfg.Group, Selection: s, Newest: newest, Cursor: BeforeAllTurns(), Status: RedriveRunning, By: r.req.By}
		if missing := int64(len(s.IDs)) - letters; missing > 0 {
			if err := r.explainMissing(a, s.IDs); err != nil {
				return err
			}
		}
		if !r.req.Execute || letters == 0 {
			return nil
		}
		if err := a.AddRedriveJob(a.ctx, &r.job); err != nil {
			return fmt.Errorf("storing the job: %w", err)
		}
		r.report.JobID = r.job.ID
		return nil
	})
}

// explainMissing refuses IDs that no letter has, or one that is closed.
func (r *redrive) explainMissing(a *action, ids []int64) error {
	letters, err := a.Letters(a.ctx, r.o.cfg.Group, ids)
	if err != nil {
		return fmt.Errorf("reading the letters: %w", err)
	}
	known := make(map[int64]LetterStatus, len(letters))
	for _, l := range letters {
		known[l.ID] = l.Status
	}
	for _, id := range ids {
		status, ok := known[id]
		if !ok {
			return &NotFoundError{fmt.Sprintf("dead letter %d of group %s", id, r.o.cfg.Group)}
		}
		if !status.Waits() {
			advice := "only letters that wait are redriven"
			if status == LetterDiscarded {
				advice = fmt.Sprintf("dlq restore %d opens it again", id)
			}
			return refusedf(advice, "dead letter %d is %s", id, status)
		}
	}
	return nil
}

func (r *redrive) run(ctx context.Context) error {
	for {
		page, more, err := r.page(ctx)
		if err != nil {
			return err
		}
		for len(page) > 0 {
			n := chunkOf(page)
			if r.req.Rate > 0 {
				n = min(n, max(1, int(r.req.Rate)))
			}
			if err := r.pace(ctx, n); err != nil {
				return err
			}
			if err := r.chunk(ctx, page[:n]); err != nil {
				return err
			}
			page = page[n:]
			if r.report.Tried >= minRedrives && float64(r.report.Refused) > r.req.MaxFailureRatio*float64(r.report.Tried) {
				r.report.Stopped = fmt.Sprintf("%d of %d letters were refused again", r.report.Refused, r.report.Tried)
				return r.end(ctx, RedriveStopped)
			}
		}
		if !more {
			return r.end(ctx, RedriveDone)
		}
	}
}

// page looks up the next letters. Its last order is left for the next page
// when it may have more, so that an order's letters stay together.
func (r *redrive) page(ctx context.Context) (page []LetterTurn, more bool, err error) {
	err = r.o.do(ctx, false, true, func(a *action) error {
		page, err = a.SelectLetters(a.ctx, r.job.Group, r.job.Selection, r.job.Newest, r.job.Cursor, redrivePage)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("looking up letters: %w", err)
	}
	if more = len(page) == redrivePage; more {
		last := page[len(page)-1].OrderID
		if first := slices.IndexFunc(page, func(t LetterTurn) bool { return t.OrderID == last }); first > 0 && last != "" {
			page = page[:first]
		}
	}
	return page, more, nil
}

// chunkOf returns how many of the letters go into one transaction: those of one order, but not too many.
func chunkOf(page []LetterTurn) int {
	n := 1
	for n < len(page) && n < redriveChunk && page[0].OrderID != "" && page[n].OrderID == page[0].OrderID {
		n++
	}
	return n
}

// pace waits until the next letters may be tried.
func (r *redrive) pace(ctx context.Context, n int) error {
	if r.req.Rate > 0 {
		due := r.began.Add(time.Duration(float64(r.report.Tried) / r.req.Rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
	}
	return context.Cause(ctx)
}

// chunk decides letters of one order again. When the database refuses them
// together they are tried one by one, and the one that fails alone is refused.
func (r *redrive) chunk(ctx context.Context, letters []LetterTurn) error {
	err := r.step(ctx, letters, -1, "")
	if err == nil || r.o.classify(err) != BadData {
		return err
	}
	for i := range letters {
		one := letters[i : i+1]
		err := r.step(ctx, one, -1, "")
		if err != nil && r.o.classify(err) == BadData {
			err = r.step(ctx, one, 0, "") // without the parked events that it releases: those are the sweep's then
		}
		if err != nil && r.o.classify(err) == BadData && r.req.Substitute == nil {
			r.o.log.Error("the database refuses a dead letter's record, also when it is tried alone", "dead_letter", one[0].ID, "error", err)
			err = r.step(ctx, one, 0, blameDetail(err))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// step is one transaction of a redrive.
func (r *redrive) step(ctx context.Context, letters []LetterTurn, drainLimit int, blame string) error {
	var results []RedriveResult
	var job RedriveJob
	err := r.o.do(ctx, r.req.Execute, true, func(a *action) (err error) {
		job = r.job
		if done, err := r.claim(a, letters); err != nil || done {
			results = nil
			return err
		}
		if results, err = a.redrive(r.req, letters, drainLimit, blame); err != nil {
			return err
		}
		job.Cursor = letters[len(letters)-1]
		for i := range results {
			if results[i].Outcome == "" {
				continue
			}
			job.Letters++
			if results[i].Refused() {
				job.Refused++
			} else {
				job.Redriven++
			}
		}
		if !r.req.Execute {
			return nil
		}
		if err := a.SaveRedriveJob(a.ctx, &job); err != nil {
			return fmt.Errorf("storing how far the job has come: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.job = job
	r.job.Cursor = letters[len(letters)-1]
	for _, result := range results {
		r.count(result)
	}
	return nil
}

// claim locks the job and sees whether the letters are still to be tried:
// a commit whose answer was lost may have tried them.
func (r *redrive) claim(a *action, letters []LetterTurn) (done bool, err error) {
	if !r.req.Execute {
		return false, nil
	}
	stored, found, err := a.LockRedriveJob(a.ctx, r.job.ID)
	switch {
	case err != nil:
		return false, fmt.Errorf("locking the job: %w", err)
	case !found:
		return false, &NotFoundError{fmt.Sprintf("redrive job %d", r.job.ID)}
	case stored.Cursor == letters[len(letters)-1]:
		return true, nil
	case stored.Cursor != r.job.Cursor:
		return false, refusedf("let that one end, or stop it and resume again", "somebody else works on job %d at the same time", r.job.ID)
	}
	return false, nil
}

func (r *redrive) count(result RedriveResult) {
	if result.Outcome != "" {
		r.report.Tried++
		r.report.Outcomes[result.Outcome]++
		switch {
		case !result.Refused():
			r.report.Redriven++
		case result.Status == LetterExhausted:
			r.report.Exhausted++
			r.report.Refused++
		default:
			r.report.Refused++
		}
	}
	if r.req.Each != nil {
		r.req.Each(result)
	}
}

func (r *redrive) end(ctx context.Context, status RedriveStatus) error {
	r.job.Status = status
	if r.job.ID == 0 {
		return nil
	}
	err := r.o.do(ctx, true, true, func(a *action) error {
		if _, _, err := a.LockRedriveJob(a.ctx, r.job.ID); err != nil {
			return err
		}
		return a.SaveRedriveJob(a.ctx, &r.job)
	})
	if err != nil {
		return fmt.Errorf("closing job %d: %w", r.job.ID, err)
	}
	return nil
}

// redrive decides letters again, all of one order or one of none.
func (a *action) redrive(req RedriveRequest, turns []LetterTurn, drainLimit int, blame string) ([]RedriveResult, error) {
	ids := make([]int64, len(turns))
	for i := range turns {
		ids[i] = turns[i].ID
	}
	letters, err := a.Letters(a.ctx, a.o.cfg.Group, ids)
	if err != nil {
		return nil, fmt.Errorf("reading letters: %w", err)
	}
	slices.SortStableFunc(letters, func(x, y *Letter) int { return slices.Index(ids, x.ID) - slices.Index(ids, y.ID) })
	var decision *OperatorDecision
	if req.Substitute != nil && len(letters) == 1 {
		if decision, err = a.substitution(letters[0], req); err != nil {
			return nil, err
		}
		if letters, err = a.withTwins(letters, decision); err != nil {
			return nil, err
		}
		ids = ids[:0]
		for _, l := range letters {
			ids = append(ids, l.ID)
		}
	}
	var items []*item
	orderID := ""
	for _, l := range letters {
		it, err := a.itemOf(l, req.Substitute, blame)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
		if it.orderID != "" {
			orderID = it.orderID
		}
		*a.log = l.Record.TopicPartition
	}
	if decision != nil {
		orderID = decision.OrderID
	}
	if orderID == "" {
		return a.refuseAgain(req, letters, items)
	}

	if decision != nil {
		if _, err := a.row(orderID); err != nil {
			return nil, err
		}
		if err := a.checkDecided(decision); err != nil {
			return nil, err
		}
		if err := a.AddDecision(a.ctx, decision); err != nil {
			return nil, fmt.Errorf("storing the substitute: %w", err)
		}
	}
	t, w, err := a.turn(orderID, items, drainLimit)
	if err != nil {
		return nil, err
	}
	states, err := a.LockLetters(a.ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("locking letters: %w", err)
	}
	results := make([]RedriveResult, 0, len(letters))
	var changes []LetterChange
	for i, l := range letters {
		state := states[l.ID]
		result := RedriveResult{LetterID: l.ID, OrderID: orderID, Version: l.Version, EventID: l.EventID, Status: state.Status, Attempts: state.Attempts}
		if w.overtaken(l.ID) { // by a letter before it: it is closed with what is written
			result.Status = LetterSuperseded
			results = append(results, result)
			continue
		}
		if !state.Status.Waits() || state.Status == LetterExhausted && len(req.Selection.IDs) == 0 {
			results = append(results, result)
			continue
		}
		drained := len(*t.drained)
		change, err := a.again(t, w, l, items[i], state, req)
		if err != nil {
			return nil, err
		}
		if it := w.substituted(t.decoder, items[i]); it.invalid == nil {
			result.Version, result.EventID = it.env.Version, it.env.EventID
		}
		result.Outcome, result.Status, result.Attempts = items[i].outcome.String(), change.Status, change.Attempts
		if change.Refused != nil {
			result.Detail = change.Refused.Detail
		}
		result.Drained = slices.Clone((*t.drained)[drained:])
		changes, results = append(changes, change), append(results, result)
	}
	if err := t.checkOlder(); err != nil { // before it shows in the letters
		return nil, err
	}
	if decision != nil {
		if err := helps(results[0]); err != nil {
			return nil, err
		}
	}
	if err := a.ChangeLetters(a.ctx, changes); err != nil {
		return nil, fmt.Errorf("writing letters: %w", err)
	}
	if err := a.finish(t, w); err != nil {
		return nil, err
	}
	after := standing(w.row)
	for i := range results {
		results[i].After = &after
	}
	return results, a.auditRedrive(req, changes, results, states, decision)
}

// helps refuses a substitute that leads nowhere. Neither does one that repeats
// what is there already stand in for anything: folded from the start, it would come before what it repeats.
func helps(r RedriveResult) error {
	switch {
	case r.Outcome == "":
		return refusedf("", "the letter is %s by now", r.Status)
	case r.Refused():
		return refusedf("nothing was stored; correct the substitute", "the substitute does not help: %s: %s", r.Outcome, r.Detail)
	case r.Outcome != Applied.String() && r.Outcome != Parked.String():
		return refusedf("discard the letter instead", "the substitute says nothing new: version %d is %s", r.Version, r.Outcome)
	}
	return nil
}

// overtaken reports whether a letter that held the order back is overtaken by now.
func (w *work) overtaken(id int64) bool {
	return slices.ContainsFunc(w.open, func(l OpenLetter) bool { return l.ID == id && l.Version <= w.row.Version })
}

// again decides one letter's record, and works out what becomes of the letter.
func (a *action) again(t *turn, w *work, l *Letter, it *item, state LetterState, req RedriveRequest) (LetterChange, error) {
	// While it is decided again, the letter neither holds its order back nor is it overtaken.
	w.open = slices.DeleteFunc(w.open, func(o OpenLetter) bool { return o.ID == l.ID })
	before := len(w.letters)
	if err := t.decideItem(a.ctx, w, it); err != nil {
		return LetterChange{}, err
	}
	change := LetterChange{ID: l.ID, Status: LetterRedriven, Attempts: state.Attempts, ClosedBy: &req.By}
	if !it.outcome.DeadLetters() || len(t.missing) > 0 {
		return change, nil
	}
	refused := w.letters[before]
	w.letters = slices.Delete(w.letters, before, before+1)
	change = refuseLetter(l.ID, state, refused, req)
	if refused.Blocks {
		w.open = append(w.open, OpenLetter{ID: l.ID, Version: refused.Version})
	}
	return change, nil
}

func refuseLetter(id int64, state LetterState, refused *DeadLetter, req RedriveRequest) LetterChange {
	change := LetterChange{ID: id, Status: LetterOpen, Attempts: state.Attempts + 1, Refused: refused}
	if change.Attempts >= req.MaxAttempts {
		change.Status = LetterExhausted
	}
	return change
}

// itemOf makes a letter's record one to be decided.
func (a *action) itemOf(l *Letter, substitute []byte, blame string) (*item, error) {
	it := newItem(a.o.cfg.Decoder, &l.Record)
	if blame != "" {
		it.blamed = true
		it.refuse(&DecodeError{Detail: blame, OrderID: l.OrderID, EventID: l.EventID, Version: l.Version})
	}
	if it.invalid != nil && it.invalid.Version == 0 && substitute == nil {
		found, err := a.SubstitutesAt(a.ctx, l.Record.TopicPartition, []int64{l.Record.Offset})
		if err != nil {
			return nil, fmt.Errorf("reading operators' substitutes: %w", err)
		}
		for _, d := range found {
			it.orderID = d.OrderID
		}
	}
	return &it, nil
}

// substitution makes the substitute for a letter's record a decision.
func (a *action) substitution(l *Letter, req RedriveRequest) (*OperatorDecision, error) {
	original := newItem(a.o.cfg.Decoder, &l.Record)
	d := &OperatorDecision{
		Kind: DecisionSubstitute, LetterID: l.ID, Log: l.Record.TopicPartition, Offset: l.Record.Offset,
		Digest: RecordDigest(&l.Record), Substitute: req.Substitute, By: req.By,
	}
	known, version := original.env.OrderID, original.env.Version
	if original.invalid != nil {
		known, version = original.invalid.OrderID, original.invalid.Version
		d.ByCoordinates = version == 0
	}
	it := newItem(a.o.cfg.Decoder, d.substitute(&l.Record))
	const advice = "it has to be one whole event, as plain JSON, of the letter's order and version"
	switch {
	case it.rec.Value == nil || it.invalid != nil && it.invalid.Detail == "":
		return nil, refusedf(advice, "the substitute is empty")
	case it.invalid != nil:
		return nil, refusedf(advice, "the substitute is invalid: %s", it.invalid.Detail)
	case known != "" && it.env.OrderID != known:
		return nil, refusedf(advice, "the substitute is of order %s, and the letter of order %s", quoted(it.env.OrderID), quoted(known))
	case version != 0 && it.env.Version != version:
		return nil, refusedf(advice, "the substitute is version %d, and the letter version %d", it.env.Version, version)
	}
	d.OrderID, d.From, d.To = it.env.OrderID, it.env.Version, it.env.Version
	return d, nil
}

// withTwins adds the letters of records that say the same: the substitute
// stands in for all of them, and the first one comes first.
func (a *action) withTwins(letters []*Letter, d *OperatorDecision) ([]*Letter, error) {
	if d.ByCoordinates {
		return letters, nil
	}
	all, err := a.LettersOf(a.ctx, a.o.cfg.Group, d.OrderID)
	if err != nil {
		return nil, fmt.Errorf("reading the order's letters: %w", err)
	}
	for _, l := range all {
		if l.ID != letters[0].ID && l.Status.Waits() && l.Version == d.From && RecordDigest(&l.Record) == d.Digest {
			letters = append(letters, l)
		}
	}
	slices.SortFunc(letters, func(x, y *Letter) int {
		return cmp.Or(cmp.Compare(x.Record.Partition, y.Record.Partition), cmp.Compare(x.Record.Offset, y.Record.Offset))
	})
	return letters, nil
}

// refuseAgain is for a record that still does not say which order it is of.
func (a *action) refuseAgain(req RedriveRequest, letters []*Letter, items []*item) ([]RedriveResult, error) {
	var results []RedriveResult
	var changes []LetterChange
	var ids []int64
	for _, l := range letters {
		ids = append(ids, l.ID)
	}
	states, err := a.LockLetters(a.ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("locking letters: %w", err)
	}
	for i, l := range letters {
		state := states[l.ID]
		result := RedriveResult{LetterID: l.ID, OrderID: l.OrderID, Version: l.Version, EventID: l.EventID, Status: state.Status, Attempts: state.Attempts}
		if state.Status == LetterOpen || state.Status == LetterExhausted && len(req.Selection.IDs) > 0 {
			change := LetterChange{ID: l.ID, Status: LetterRedriven, Attempts: state.Attempts, ClosedBy: &req.By}
			if items[i].outcome == Invalid {
				change = refuseLetter(l.ID, state, invalidLetter(a.o.cfg.Group, items[i]), req)
				result.Detail = change.Refused.Detail
			}
			result.Outcome, result.Status, result.Attempts = items[i].outcome.String(), change.Status, change.Attempts
			changes = append(changes, change)
		}
		results = append(results, result)
	}
	if err := a.ChangeLetters(a.ctx, changes); err != nil {
		return nil, fmt.Errorf("writing letters: %w", err)
	}
	return results, a.auditRedrive(req, changes, results, states, nil)
}

// auditRedrive writes one entry for each letter that was decided again.
func (a *action) auditRedrive(req RedriveRequest, changes []LetterChange, results []RedriveResult, states map[int64]LetterState, decision *OperatorDecision) error {
	for _, c := range changes {
		i := slices.IndexFunc(results, func(r RedriveResult) bool { return r.LetterID == c.ID })
		state := states[c.ID]
		after := map[string]any{"status": c.Status, "attempts": c.Attempts, "outcome": results[i].Outcome}
		if results[i].Detail != "" {
			after["detail"] = results[i].Detail
		}
		if results[i].After != nil {
			after["order"] = results[i].After
		}
		if decision != nil {
			after["substitute_decision"] = decision.ID
		}
		err := a.Audit(a.ctx, AuditEntry{
			Actor: req.By.Actor, Action: "dlq.redrive", Target: letterTarget(c.ID), Comment: req.By.Comment,
			Before: map[string]any{"status": state.Status, "attempts": state.Attempts}, After: after,
		})
		if err != nil {
			return err
		}
	}
	return nil
}
