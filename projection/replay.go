package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/orderprojector/orderprojector/domain/order"
)

// ReplayConfig says what is read again. Zero values mean the defaults.
type ReplayConfig struct {
	Group   string
	Store   Store
	Decoder Decoder // EventDecoder when nil
	Older   RecordReader
	Log     Log
	Letters LetterFinder
	Logger  *slog.Logger
	// Ranges are the stretches to read, one per partition, each with the watermark of
	// its partition in Marks. What is above the watermark is left to the members.
	Ranges []LogRange
	Marks  map[TopicPartition]Watermark
	Orders []string // only records of these orders; empty for all
	// Execute applies what is missing. Unset, it is only found out what would be.
	Execute bool
	Rate    float64 // records per second; 0 for no limit
	// Progress, when set, is called after each batch: everything below Next of the
	// partition is done.
	Progress func(ReplayProgress)
}

// ReplayProgress is how far a replay has come.
type ReplayProgress struct {
	TopicPartition
	Next        int64
	Done, Total int64 // offsets, over all partitions
	Elapsed     time.Duration
}

// LetterRef asks for the dead letter of a record, or of an equal one.
type LetterRef struct {
	Offset  int64
	OrderID string
	Version int64
	EventID string
}

// LetterFinder knows the dead letters.
type LetterFinder interface {
	// KnownLetters reports, for each record of a partition, whether it, or the event
	// that it is, has a dead letter, open or closed.
	KnownLetters(ctx context.Context, group string, log TopicPartition, refs []LetterRef) ([]bool, error)
}

// RowDifference is an order whose row is not what its records say, and which a
// replay does not overwrite.
type RowDifference struct {
	OrderID string `json:"order_id"`
	Cause   string `json:"cause"`
}

// ReplayResult is what a replay found, and did if it was executed.
type ReplayResult struct {
	Records  int64 // visible ones
	Outcomes Counts
	// Changed are the rows that were written, or would be; Beyond counts further ones that
	// are not remembered one by one.
	Changed map[string]*RowChange
	Beyond  int64
	Parked  int64 // events that were parked, or would be
	// Differing are orders whose rows differ from their records, by ID. Each is there once.
	Differing []RowDifference
}

const (
	replayBatch = 500
	replayBytes = 1 << 20
)

// Replay reads stretches of the topic again and decides every record as the
// projector does, with the same guards. Below the watermark that moves no watermark, counts nothing and makes no
// dead letters. It joins no group. When it ends early, the result is what was done so far.
func Replay(ctx context.Context, cfg ReplayConfig) (*ReplayResult, error) {
	if cfg.Group == "" || cfg.Store == nil || cfg.Older == nil || cfg.Log == nil || cfg.Letters == nil {
		return nil, errors.New("replay: Group, Store, Older, Log and Letters are required")
	}
	if cfg.Decoder == nil {
		cfg.Decoder = EventDecoder{}
	}
	if cfg.Progress == nil {
		cfg.Progress = func(ReplayProgress) {}
	}
	store := cfg.Store
	if !cfg.Execute {
		store = newOverlay(store, cfg.Marks)
	}
	changes := newChangeLog(store)
	projector, err := NewProjector(ProjectorConfig{Group: cfg.Group, Store: changes, Decoder: cfg.Decoder, Older: cfg.Older, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	r := &replay{cfg: cfg, projector: projector, changes: changes, began: time.Now(), folds: map[string]*replayFold{}, differing: map[string]string{}, result: &ReplayResult{}}
	if len(cfg.Orders) > 0 {
		r.orders = make(map[string]bool, len(cfg.Orders))
		for _, id := range cfg.Orders {
			r.orders[id] = true
		}
	}
	for _, stretch := range cfg.Ranges {
		r.total += max(0, stretch.Until-stretch.From)
	}
	for _, stretch := range cfg.Ranges {
		if err = r.partition(ctx, stretch); err != nil {
			break
		}
	}
	if err == nil {
		err = r.compareRows(ctx)
	}
	return r.conclude(), err
}

type replay struct {
	cfg       ReplayConfig
	projector *Projector
	changes   *changeLog
	orders    map[string]bool // nil for all
	began     time.Time
	done      int64
	total     int64
	paced     int64 // visible records
	folds     map[string]*replayFold
	differing map[string]string // the first cause, by order
	result    *ReplayResult
}

func (r *replay) partition(ctx context.Context, stretch LogRange) error {
	mark, found := r.cfg.Marks[stretch.TopicPartition]
	if !found || stretch.Until > mark.NextOffset {
		return fmt.Errorf("replaying %s up to offset %d: its watermark is %d", stretch.TopicPartition, stretch.Until, mark.NextOffset)
	}
	logger := r.projector.log.With("topic", stretch.Topic, "partition", stretch.Partition)
	part := &partition{
		Progress: Progress{
			key:      WatermarkKey{Group: r.cfg.Group, TopicPartition: stretch.TopicPartition},
			position: stretch.From, generation: mark.Generation,
		},
		projector: r.projector, log: logger, cache: newRowCache(r.projector.budget),
	}
	defer part.Close()
	passed := stretch.From
	pass := func(next int64) {
		r.done += next - passed
		passed = next
		r.cfg.Progress(ReplayProgress{stretch.TopicPartition, next, r.done, r.total, time.Since(r.began)})
	}
	var records []Record
	size := 0
	flush := func(next int64) error {
		if len(records) > 0 {
			if err := r.batch(ctx, part, records); err != nil {
				return err
			}
		}
		records, size = nil, 0
		pass(next)
		return r.pace(ctx)
	}
	err := r.cfg.Log.ReadRange(ctx, stretch, func(rec Record) error {
		if r.wants(&rec) {
			records = append(records, rec)
			size += len(rec.Value)
		}
		if len(records) >= r.batchRecords() || size >= replayBytes || rec.Offset-passed >= 100*replayBatch {
			return flush(rec.Offset + 1)
		}
		return ctx.Err()
	})
	if err == nil {
		err = flush(stretch.Until)
	}
	if err != nil {
		return fmt.Errorf("replaying %s at offset %d: %w", stretch.TopicPartition, passed, err)
	}
	return nil
}

// batchRecords keeps a slow replay smooth.
func (r *replay) batchRecords() int {
	if r.cfg.Rate > 0 {
		return max(1, min(replayBatch, int(r.cfg.Rate/10)))
	}
	return replayBatch
}

func (r *replay) wants(rec *Record) bool {
	switch {
	case r.orders == nil:
		return true
	case rec.Key != nil:
		return r.orders[string(rec.Key)]
	case rec.Value == nil:
		return false
	}
	it := newItem(r.cfg.Decoder, rec)
	return r.orders[it.orderID]
}

// pace waits until as many records as were replayed are due.
func (r *replay) pace(ctx context.Context) error {
	if r.cfg.Rate <= 0 {
		return ctx.Err()
	}
	due := r.began.Add(time.Duration(float64(r.paced) / r.cfg.Rate * float64(time.Second)))
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(due)):
		return nil
	}
}

func (r *replay) batch(ctx context.Context, part *partition, records []Record) error {
	part.older = nil
	b := newBatch(r.cfg.Decoder, records, newBatchMemory(), part.position)
	if err := part.project(ctx, b); err != nil {
		return err
	}
	pr := part.projector
	if _, err := pr.drainAll(ctx, pr.drains.take()); err != nil {
		return err
	}
	r.paced += int64(len(records))
	var refs []LetterRef
	var refused []*item
	for i := range b.items {
		it := &b.items[i]
		r.result.Records++
		r.result.Outcomes[it.outcome]++
		if it.held {
			continue // its order waits for a held record
		}
		if it.outcome.DeadLetters() {
			ref := LetterRef{Offset: it.rec.Offset, OrderID: it.orderID, Version: it.version(), EventID: it.env.EventID}
			if it.invalid != nil {
				ref.EventID = it.invalid.EventID
			}
			refs, refused = append(refs, ref), append(refused, it)
			continue
		}
		r.fold(it)
	}
	if len(refs) == 0 {
		return nil
	}
	known, err := r.cfg.Letters.KnownLetters(ctx, r.cfg.Group, part.key.TopicPartition, refs)
	if err != nil {
		return fmt.Errorf("reading dead letters: %w", err)
	}
	for i, it := range refused {
		if !known[i] {
			id := it.orderID
			if id == "" {
				id = string(it.rec.Key)
			}
			r.differs(id, fmt.Sprintf("%s: the record at partition %d offset %d, version %d, and it has no dead letter",
				it.outcome, it.rec.Partition, it.rec.Offset, it.version()))
		}
	}
	return nil
}

func (r *replay) differs(orderID, cause string) {
	if _, known := r.differing[orderID]; !known {
		r.differing[orderID] = cause
	}
}

// replayFold is an order as the replayed records make it, while they came one
// after another from the first on.
type replayFold struct {
	version     int64
	state       order.Order
	lastEventID string
	updatedAt   time.Time
	broken      bool // not all of its records were seen
}

func (r *replay) fold(it *item) {
	if it.orderID == "" || it.invalid != nil {
		return
	}
	f := r.folds[it.orderID]
	if f == nil {
		f = &replayFold{}
		r.folds[it.orderID] = f
	}
	env := &it.env
	switch {
	case f.broken || env.Version <= f.version:
		return
	case it.outcome != Applied && it.outcome != Duplicate || env.Version != f.version+1 || env.Event == nil:
		f.broken = true
		return
	}
	next, err := order.Apply(f.state, env.Event)
	if err != nil {
		f.broken = true // a substitute is in its place, or the ledger is not what it should be
		return
	}
	f.version, f.state, f.lastEventID, f.updatedAt = env.Version, next, env.EventID, env.OccurredAt
}

// compareRows compares the rows of orders that were folded from their first event to their last.
func (r *replay) compareRows(ctx context.Context) error {
	ids := make([]string, 0, len(r.folds))
	for id, f := range r.folds {
		if f.version > 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for page := range slices.Chunk(ids, replayBatch) {
		var rows map[string]*Row
		err := r.projector.retry(ctx, r.projector.attempts(r.projector.log, TopicPartition{}), "reading orders", func(ctx context.Context) error {
			return r.changes.Store.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
				rows, err = tx.Rows(ctx, page)
				return err
			})
		})
		if err != nil {
			return fmt.Errorf("reading orders: %w", err)
		}
		for _, id := range page {
			if cause := r.folds[id].differs(rows[id]); cause != "" {
				r.differs(id, cause)
			}
		}
	}
	return nil
}

// differs says what of a row is not as the fold has it, or "".
func (f *replayFold) differs(row *Row) string {
	switch {
	case row == nil:
		return fmt.Sprintf("there is no row, and the records give version %d", f.version)
	case row.Decided:
		return "" // operators decided about it: verify knows how to fold that
	case row.Version < f.version:
		return fmt.Sprintf("the row is at version %d, and the records give %d", row.Version, f.version)
	case row.Version > f.version:
		if e := row.Entry(f.version); e != nil && e.State != f.state.State {
			return fmt.Sprintf("state after version %d: expected %s, found %s", f.version, f.state.State, e.State)
		}
		return ""
	}
	for _, c := range []struct {
		column          string
		expected, found any
	}{
		{"state", f.state.State, row.State}, {"customer_id", f.state.CustomerID, row.CustomerID}, {"currency", f.state.Currency, row.Currency},
		{"total_minor", f.state.TotalMinor, row.TotalMinor}, {"paid_minor", f.state.PaidMinor, row.PaidMinor},
		{"refunded_minor", f.state.RefundedMinor, row.RefundedMinor}, {"last_event_id", f.lastEventID, row.LastEventID},
		{"updated_at", f.updatedAt.UTC(), row.UpdatedAt.UTC()},
	} {
		if c.expected != c.found {
			return fmt.Sprintf("%s: expected %v, found %v", c.column, c.expected, c.found)
		}
	}
	return ""
}

func (r *replay) conclude() *ReplayResult {
	r.result.Changed, r.result.Beyond, r.result.Parked = r.changes.rows, r.changes.beyond, r.changes.parked
	for id, cause := range r.differing {
		r.result.Differing = append(r.result.Differing, RowDifference{id, cause})
	}
	slices.SortFunc(r.result.Differing, func(a, b RowDifference) int {
		return cmp.Or(strings.Compare(a.OrderID, b.OrderID), strings.Compare(a.Cause, b.Cause))
	})
	return r.result
}
