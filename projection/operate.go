package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"
)

// Log reads a topic again, without a group.
type Log interface {
	// Ranges returns every partition of a topic, from the start of its log to its last stable offset.
	Ranges(ctx context.Context, topic string) ([]LogRange, error)
	// ReadRange calls fn for every visible record of a stretch, in offset order. An error of fn ends it and is returned.
	ReadRange(ctx context.Context, r LogRange, fn func(Record) error) error
}

// LogRange is a stretch of one partition's log: from From (inclusive) to Until (exclusive).
type LogRange struct {
	TopicPartition
	From, Until int64
}

// OperatorConfig is what an Operator is made of. Zero values mean the defaults.
type OperatorConfig struct {
	Group   string        // consumer group; required
	Topic   string        // the topic that is projected; required to read it again
	Store   OperatorStore // required
	Decoder Decoder       // EventDecoder when nil
	Older   RecordReader  // reads records again to compare; required
	Log     Log           // reads the topic again; required for what re-projects orders and repairs gaps
	Logger  *slog.Logger

	Timeout   time.Duration // deadline of one transaction
	Tries     int           // of a transaction that fails for a reason that passes
	RetryBase time.Duration
	RetryCap  time.Duration
}

// Operator carries out what people decide about letters, gaps and orders. Everything is
// decided on the order's locked row in one transaction, with its row in the audit log, so operators
// and members can work on the same order at once. It is safe for concurrent use.
//
// With Execute unset, an action does the same and rolls back: what it returns
// is what would happen.
type Operator struct {
	cfg     OperatorConfig
	log     *slog.Logger
	retrier *Retrier
	drainer *Projector // drains what an action leaves beyond its budget
}

// NewOperator returns an operator, or an error that names the field that is wrong.
func NewOperator(cfg OperatorConfig) (*Operator, error) {
	switch {
	case cfg.Group == "":
		return nil, errors.New("operator: Group is empty")
	case cfg.Store == nil:
		return nil, errors.New("operator: Store is missing")
	case cfg.Older == nil:
		return nil, errors.New("operator: Older is missing")
	}
	if cfg.Decoder == nil {
		cfg.Decoder = EventDecoder{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultBatchTimeout)
	cfg.Tries = cmp.Or(cfg.Tries, 8)
	cfg.RetryBase = cmp.Or(cfg.RetryBase, DefaultRetryBase)
	cfg.RetryCap = cmp.Or(cfg.RetryCap, DefaultRetryCap)
	o := &Operator{cfg: cfg, log: cfg.Logger}
	none := func(error) string { return "" }
	o.retrier = NewRetrier(RetrierConfig{
		Slots: operatorSlots, Timeout: cfg.Timeout, Base: cfg.RetryBase, Cap: cfg.RetryCap, Classify: o.classify, Hint: none,
	})
	var err error
	o.drainer, err = NewProjector(ProjectorConfig{
		Group: cfg.Group, Store: cfg.Store, Decoder: cfg.Decoder, Older: cfg.Older, Logger: cfg.Logger, BatchTimeout: cfg.Timeout,
		RetryBase: cfg.RetryBase, RetryCap: cfg.RetryCap,
	})
	return o, err
}

// operatorSlots is how many transactions an operator has at the same time, at most.
const operatorSlots = 64

// RefusedError says why an operator's action is not carried out. Nothing was changed.
type RefusedError struct {
	Reason string
	Advice string
}

func (e *RefusedError) Error() string { return e.Reason }

// Hint says what the operator can do instead.
func (e *RefusedError) Hint() string { return e.Advice }

func refusedf(advice, format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...), Advice: advice}
}

// NotFoundError says that there is nothing of the kind to act on.
type NotFoundError struct{ What string }

func (e *NotFoundError) Error() string { return e.What + " does not exist" }

// errDryRun rolls back what was only tried.
var errDryRun = errors.New("dry run")

// action is one transaction of an operator, with what it takes to decide.
type action struct {
	ctx context.Context
	OperatorTx
	o     *Operator
	older map[coordinate]*Envelope
	log   *TopicPartition // where the records are that may have to be read again
	// unfinished are orders with parked events that are due beyond the budget.
	unfinished []string
}

// do carries out an action in one transaction. A race that was lost and a
// record that has to be read again lead to another try, as do failures that pass when
// repeatable says that doing it twice does no harm (the outcome of a commit may be unknown). Orders that were not
// drained within the transaction's budget are drained behind it.
func (o *Operator) do(ctx context.Context, execute, repeatable bool, work func(a *action) error) error {
	job := o.newJob(execute, repeatable)
	job.work = work
	if err := o.retrier.Run(ctx, o.retrier.Limited(o.log, o.cfg.Tries), job); err != nil {
		return ended(err)
	}
	if execute {
		return o.drain(ctx, job.action.unfinished)
	}
	return nil
}

func (o *Operator) newJob(execute, repeatable bool) *actionJob {
	return &actionJob{
		o: o, execute: execute, repeatable: repeatable, left: 1,
		action: &action{o: o, older: make(map[coordinate]*Envelope), log: &TopicPartition{Topic: o.cfg.Topic}},
	}
}

// drain decides what parked events an action left beyond its budget. Where that fails, members go on with it.
func (o *Operator) drain(ctx context.Context, orderIDs []string) error {
	if _, err := o.drainer.drainAll(ctx, orderIDs); err != nil {
		o.log.Warn("draining goes on in the members' sweep", "error", err)
	}
	return context.Cause(ctx)
}

// actionJob is an action as a job of one piece.
type actionJob struct {
	o                   *Operator
	execute, repeatable bool
	narrows             bool // what the database refuses is looked for
	work                func(a *action) error
	action              *action
	left                int
}

func (j *actionJob) What(int) string                                   { return "the transaction" }
func (j *actionJob) Left() int                                         { return j.left }
func (j *actionJob) Suspect(context.Context, int, Failure, error) int  { return 0 }
func (j *actionJob) Alone(_ context.Context, _ Failure, c error) error { return c }

func (j *actionJob) Try(ctx context.Context, _ int) error {
	err := j.o.once(ctx, j.execute, j.action, j.work)
	if err == nil || errors.Is(err, errDryRun) {
		j.left = 0
		return nil
	}
	_, needed := isOneOf[*errOlderNeeded](err)
	undrained, isUndrained := isOneOf[*errUndrained](err)
	if isUndrained && !j.execute {
		err = refusedf("try again in a moment", "order %s is being drained", quoted(undrained.orderID))
	} else if isUndrained || needed || errors.Is(err, errGuardMissed) {
		return err
	}
	again := false
	switch j.o.retrier.Classify(err) {
	case Transient, Locked, LostRace, TooSlow, Unanswered, Unconnected:
		again = j.repeatable
	case BadData:
		again = j.narrows
	}
	if again {
		return err
	}
	return &endError{err}
}

func (j *actionJob) Answer(ctx context.Context, err error) (bool, error) {
	if undrained, ok := isOneOf[*errUndrained](err); ok {
		return true, j.o.drainer.drain(ctx, j.o.retrier, undrained.orderID)
	}
	needed, ok := isOneOf[*errOlderNeeded](err)
	if !ok {
		return false, nil
	}
	return true, readOlder(ctx, j.o.cfg.Timeout, j.o.cfg.Older, j.o.cfg.Decoder, j.action.older, *j.action.log, needed.coordinates)
}

func (o *Operator) once(ctx context.Context, execute bool, a *action, work func(a *action) error) error {
	return o.cfg.Store.InOperatorTx(ctx, func(ctx context.Context, tx OperatorTx) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = &panicError{value: v, stack: debug.Stack()}
			}
		}()
		a.ctx, a.OperatorTx, a.unfinished = ctx, tx, nil
		if err := work(a); err != nil {
			return err
		}
		if !execute {
			return errDryRun
		}
		return nil
	})
}

func (o *Operator) classify(err error) Failure {
	var refused *RefusedError
	var missing *NotFoundError
	var panicked *panicError
	switch {
	case errors.As(err, &refused), errors.As(err, &missing):
		return Unhealthy
	case errors.As(err, &panicked):
		return BadData
	case errors.Is(err, errGuardMissed):
		return LostRace
	}
	return o.cfg.Store.Classify(err)
}

// newTurn is a turn of orders that an operator acts on.
func (a *action) newTurn(works []*work, drain budget) *turn {
	return &turn{
		tx: a.OperatorTx, group: a.o.cfg.Group, decoder: a.o.cfg.Decoder, older: a.older, budget: drain,
		sorted: works, drained: &[]DrainedEvent{},
	}
}

// turn locks an order and reads everything that deciding on it takes.
func (a *action) turn(orderID string, items []*item) (*turn, *work, error) {
	w := newWork(orderID, nil)
	w.items = items
	t := a.newTurn([]*work{w}, turnBudget())
	if err := t.lock(a.ctx, t.sorted); err != nil {
		return nil, nil, err
	}
	return t, w, t.drain(a.ctx, w)
}

// finish writes what was decided.
func (a *action) finish(t *turn) error {
	for _, w := range t.sorted {
		w.settle()
	}
	if err := t.checkOlder(); err != nil {
		return err
	}
	lost, err := t.write(a.ctx, t.sorted)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		return errGuardMissed
	}
	a.unfinished = t.unfinished()
	return t.keep(a.ctx)
}

// row locks an order's row.
func (a *action) row(orderID string) (*Row, error) {
	rows, err := a.LockRows(a.ctx, []string{orderID})
	if err != nil {
		return nil, fmt.Errorf("locking order %s: %w", quoted(orderID), err)
	}
	return rows[orderID], nil
}

// Standing is how an order stands, before or after an action.
type Standing struct {
	OrderID    string `json:"order_id"`
	Version    int64  `json:"version"`
	State      string `json:"state"`
	Status     Status `json:"projection_status"`
	WaitingFor int64  `json:"waiting_for_version,omitempty"`
}

func standing(r *Row) Standing {
	return Standing{r.OrderID, r.Version, string(r.State), r.Status, r.WaitingFor()}
}

var errNobody = errors.New("nobody is named who does it")

func needComment(by By) error {
	switch {
	case strings.TrimSpace(by.Actor) == "":
		return errNobody
	case strings.TrimSpace(by.Comment) == "":
		return errors.New("there is no comment that says why")
	}
	return nil
}
