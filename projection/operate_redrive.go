package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Defaults of RedriveRequest.
const (
	DefaultMaxAttempts     = 5
	DefaultMaxFailureRatio = 0.5
	// minRedrives is how many letters a redrive tries before it judges by the ratio of failures.
	minRedrives = 20

	redrivePage  = 500 // letters that are looked up at once
	redriveChunk = 32  // letters in one transaction: their records are in memory
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
			n := r.chunkOf(page)
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

// page looks up the next letters.
func (r *redrive) page(ctx context.Context) (page []LetterTurn, more bool, err error) {
	err = r.o.do(ctx, false, true, func(a *action) error {
		page, err = a.SelectLetters(a.ctx, r.job.Group, r.job.Selection, r.job.Newest, r.job.Cursor, redrivePage)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("looking up letters: %w", err)
	}
	return page, len(page) == redrivePage, nil
}

// chunkOf returns how many of the letters go into one transaction: not so many
// that their records are a burden, or that it is too late to stop.
func (r *redrive) chunkOf(page []LetterTurn) int {
	n := min(len(page), redriveChunk)
	if left := minRedrives - r.report.Tried; left > 0 {
		n = min(n, int(left))
	}
	if r.req.Rate > 0 {
		n = min(n, max(1, int(r.req.Rate)))
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

// chunk decides letters again in one transaction. When the database refuses them
// together they are tried one by one, and the one that fails alone is refused.
func (r *redrive) chunk(ctx context.Context, letters []LetterTurn) error {
	job := &redriveJob{actionJob: *r.o.newJob(r.req.Execute, true), redrive: r, letters: letters}
	job.narrows = true
	if err := r.o.retrier.Run(ctx, r.o.retrier.Limited(r.o.log, r.o.cfg.Tries), job); err != nil {
		return ended(err)
	}
	if !r.req.Execute {
		return nil
	}
	return r.o.drain(ctx, job.orders)
}

// redriveJob decides letters again. A piece is a letter.
type redriveJob struct {
	actionJob
	redrive *redrive
	letters []LetterTurn
	passed  int
	orders  []string // to be drained
}

func (j *redriveJob) What(n int) string { return fmt.Sprintf("redriving %d dead letters", n) }
func (j *redriveJob) Left() int         { return len(j.letters) - j.passed }

func (j *redriveJob) Suspect(context.Context, int, Failure, error) int { return -1 }

func (j *redriveJob) Try(ctx context.Context, n int) error {
	return j.step(ctx, j.letters[j.passed:j.passed+n], turnBudget(), "")
}

// Alone implements Job: a letter goes without the parked events that it releases, where these are the
// cause. They are the sweep's then.
func (j *redriveJob) Alone(ctx context.Context, class Failure, cause error) error {
	if class != BadData {
		return &endError{cause}
	}
	o := j.redrive.o
	one := j.letters[j.passed : j.passed+1]
	err := o.retrier.Bounded(ctx, func(ctx context.Context) error { return j.step(ctx, one, budget{}, "") })
	if err != nil && o.retrier.Classify(ended(err)) == BadData && j.redrive.req.Substitute == nil {
		o.log.Error("the database refuses a dead letter's record, also when it is tried alone", "dead_letter", one[0].ID, "error", err)
		err = o.retrier.Bounded(ctx, func(ctx context.Context) error { return j.step(ctx, one, budget{}, blameDetail(ended(err))) })
	}
	if err != nil {
		return &endError{ended(err)}
	}
	return nil
}

// step is one transaction of a redrive.
func (j *redriveJob) step(ctx context.Context, letters []LetterTurn, drain budget, blame string) error {
	r := j.redrive
	var results []RedriveResult
	var job RedriveJob
	j.work = func(a *action) (err error) {
		job = r.job
		if done, err := r.claim(a, letters); err != nil || done {
			results = nil
			return err
		}
		if results, err = a.redrive(r.req, letters, drain, blame); err != nil {
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
	}
	if err := j.actionJob.Try(ctx, 1); err != nil {
		return err
	}
	j.passed += len(letters)
	j.orders = append(j.orders, j.action.unfinished...)
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

// candidate is a letter that is decided again.
type candidate struct {
	letter *Letter
	item   *item
	state  LetterState
	work   *work // of its order; nil when the record does not say which that is
	change *LetterChange
	result RedriveResult
}

// redrive decides letters again, in the order of their turns.
func (a *action) redrive(req RedriveRequest, turns []LetterTurn, drain budget, blame string) ([]RedriveResult, error) {
	candidates, decision, err := a.candidates(req, turns, blame)
	if err != nil {
		return nil, err
	}
	if decision != nil {
		if _, err := a.row(decision.OrderID); err != nil {
			return nil, err
		}
		if err := a.checkDecided(decision); err != nil {
			return nil, err
		}
		if err := a.AddDecision(a.ctx, decision); err != nil {
			return nil, fmt.Errorf("storing the substitute: %w", err)
		}
	}
	t := a.newTurn(worksOf(candidates), drain)
	if len(t.sorted) > 0 {
		if err := t.lock(a.ctx, t.sorted); err != nil {
			return nil, err
		}
	}
	if err := a.lockCandidates(candidates); err != nil {
		return nil, err
	}
	for _, w := range t.sorted {
		if err := t.drain(a.ctx, w); err != nil {
			return nil, err
		}
	}
	for _, c := range candidates {
		if err := a.decideAgain(t, c, req); err != nil {
			return nil, err
		}
	}
	if err := t.checkOlder(); err != nil { // before it shows in the letters
		return nil, err
	}
	if decision != nil {
		if err := helps(candidates[0].result); err != nil {
			return nil, err
		}
	}
	if err := a.ChangeLetters(a.ctx, changesOf(candidates)); err != nil {
		return nil, fmt.Errorf("writing letters: %w", err)
	}
	if err := a.finish(t); err != nil {
		return nil, err
	}
	results := make([]RedriveResult, len(candidates))
	for i, c := range candidates {
		if c.work != nil {
			after := standing(c.work.row)
			c.result.After = &after
		}
		results[i] = c.result
	}
	return results, a.auditRedrive(req, candidates, decision)
}

// candidates reads the letters' records and finds the orders that they belong to.
func (a *action) candidates(req RedriveRequest, turns []LetterTurn, blame string) (candidates []*candidate, decision *OperatorDecision, err error) {
	ids := make([]int64, len(turns))
	place := make(map[int64]int, len(turns))
	for i := range turns {
		ids[i], place[turns[i].ID] = turns[i].ID, i
	}
	letters, err := a.Letters(a.ctx, a.o.cfg.Group, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("reading letters: %w", err)
	}
	slices.SortFunc(letters, func(x, y *Letter) int { return place[x.ID] - place[y.ID] })
	if req.Substitute != nil && len(letters) == 1 {
		if decision, err = a.substitution(letters[0], req); err != nil {
			return nil, nil, err
		}
		if letters, err = a.withTwins(letters, decision); err != nil {
			return nil, nil, err
		}
	}
	works := make(map[string]*work)
	for _, l := range letters {
		it, err := a.itemOf(l, req.Substitute, blame)
		if err != nil {
			return nil, nil, err
		}
		*a.log = l.Record.TopicPartition
		c := &candidate{letter: l, item: it}
		orderID := it.orderID
		if decision != nil {
			orderID = decision.OrderID
		}
		if orderID != "" {
			if c.work = works[orderID]; c.work == nil {
				c.work = newWork(orderID, nil)
				works[orderID] = c.work
			}
			c.work.items = append(c.work.items, it)
		}
		candidates = append(candidates, c)
	}
	return candidates, decision, nil
}

// worksOf returns the orders of letters, sorted.
func worksOf(candidates []*candidate) []*work {
	var works []*work
	for _, c := range candidates {
		if c.work != nil && !slices.Contains(works, c.work) {
			works = append(works, c.work)
		}
	}
	slices.SortFunc(works, func(x, y *work) int { return strings.Compare(x.orderID, y.orderID) })
	return works
}

func (a *action) lockCandidates(candidates []*candidate) error {
	ids := make([]int64, len(candidates))
	for i, c := range candidates {
		ids[i] = c.letter.ID
	}
	states, err := a.LockLetters(a.ctx, ids)
	if err != nil {
		return fmt.Errorf("locking letters: %w", err)
	}
	for _, c := range candidates {
		c.state = states[c.letter.ID]
		c.result = RedriveResult{
			LetterID: c.letter.ID, OrderID: c.letter.OrderID, Version: c.letter.Version, EventID: c.letter.EventID,
			Status: c.state.Status, Attempts: c.state.Attempts,
		}
	}
	return nil
}

func changesOf(candidates []*candidate) []LetterChange {
	var changes []LetterChange
	for _, c := range candidates {
		if c.change != nil {
			changes = append(changes, *c.change)
		}
	}
	return changes
}

// decideAgain decides one letter's record, unless somebody closed the letter
// meanwhile, and works out what becomes of it.
func (a *action) decideAgain(t *turn, c *candidate, req RedriveRequest) error {
	w := c.work
	switch {
	case w != nil && w.overtaken(c.letter.ID): // by a letter before it: it is closed with what is written
		c.result.Status = LetterSuperseded
		return nil
	case !c.state.Status.Waits(), c.state.Status == LetterExhausted && len(req.Selection.IDs) == 0:
		return nil
	}
	change := LetterChange{ID: c.letter.ID, Status: LetterRedriven, Attempts: c.state.Attempts, ClosedBy: &req.By}
	drained := len(*t.drained)
	refused := c.refusedAlone(a.o.cfg.Group)
	if w != nil {
		var err error
		if refused, err = t.again(a.ctx, w, c); err != nil {
			return err
		}
		c.result.OrderID = w.orderID
		if it := w.substituted(t.decoder, c.item); it.invalid == nil {
			c.result.Version, c.result.EventID = it.env.Version, it.env.EventID
		}
		c.result.Drained = slices.Clone((*t.drained)[drained:])
	}
	if refused != nil {
		change = refuseLetter(c.letter.ID, c.state, refused, req)
		c.result.Detail = refused.Detail
	}
	c.change = &change
	c.result.Outcome, c.result.Status, c.result.Attempts = c.item.outcome.String(), change.Status, change.Attempts
	return nil
}

// refusedAlone is the new letter of a record that does not say which order it is of.
func (c *candidate) refusedAlone(group string) *DeadLetter {
	if c.work != nil || c.item.outcome != Invalid {
		return nil
	}
	return invalidLetter(group, c.item)
}

// again decides a letter's record on its order. While it is decided, the letter
// neither holds its order back nor is it overtaken. refused is the letter that it makes now.
func (t *turn) again(ctx context.Context, w *work, c *candidate) (refused *DeadLetter, err error) {
	w.open = slices.DeleteFunc(w.open, func(o OpenLetter) bool { return o.ID == c.letter.ID })
	before := len(w.letters)
	if err := t.decideItem(ctx, w, c.item); err != nil {
		return nil, err
	}
	if !c.item.outcome.DeadLetters() || len(t.missing) > 0 {
		return nil, nil
	}
	refused = w.letters[before]
	w.letters = slices.Delete(w.letters, before, before+1)
	if refused.Blocks {
		w.open = append(w.open, OpenLetter{ID: c.letter.ID, Version: refused.Version})
	}
	return refused, nil
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

// auditRedrive writes one entry for each letter that was decided again.
func (a *action) auditRedrive(req RedriveRequest, candidates []*candidate, decision *OperatorDecision) error {
	var entries []AuditEntry
	for _, c := range candidates {
		if c.change == nil {
			continue
		}
		after := map[string]any{"status": c.change.Status, "attempts": c.change.Attempts, "outcome": c.result.Outcome}
		if c.result.Detail != "" {
			after["detail"] = c.result.Detail
		}
		if c.result.After != nil {
			after["order"] = c.result.After
		}
		if decision != nil {
			after["substitute_decision"] = decision.ID
		}
		entries = append(entries, AuditEntry{
			Actor: req.By.Actor, Action: "dlq.redrive", Target: letterTarget(c.letter.ID), Comment: req.By.Comment,
			Before: map[string]any{"status": c.state.Status, "attempts": c.state.Attempts}, After: after,
		})
	}
	return a.Audit(a.ctx, entries...)
}
