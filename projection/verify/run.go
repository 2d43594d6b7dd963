package verify

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
	"github.com/orderprojector/orderprojector/projection/reference/compare"
)

const (
	// tail is how many offsets may be left to fold when the snapshot is taken.
	tail = 20_000
	// maxRounds bounds how often the fold runs after the members before it gives up,
	// and how often it starts again because operators decided meanwhile.
	maxRounds = 10
)

// errDecisionsChanged says that operators decided something while the fold was under way.
var errDecisionsChanged = errors.New("operators' decisions changed")

// Run folds the topic and compares. The error says that it could not be
// finished; differences are in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.prepare(); err != nil {
		return nil, err
	}
	began := time.Now()
	chooser, err := newChooser(ctx, cfg.DB, cfg.Selection)
	if err != nil {
		return nil, err
	}
	for range maxRounds {
		v := &verification{cfg: cfg, chooser: chooser, began: began}
		report, err := v.run(ctx)
		if errors.Is(err, errDecisionsChanged) {
			cfg.Logger.Info("operators decided something meanwhile: starting again")
			continue
		}
		if err != nil {
			return nil, err
		}
		report.finish(began)
		return report, nil
	}
	return nil, fmt.Errorf("%w during each of %d attempts: run it when they are done", errDecisionsChanged, maxRounds)
}

// verification is one fold and what is compared with it.
type verification struct {
	cfg     Config
	chooser *chooser
	began   time.Time

	id        projection.TopicID
	ranges    map[int32]projection.LogRange // as the topic was at the start
	fold      *reference.Fold
	decisions []reference.Decision
	offsets   map[place]bool  // of records that stand for others by their coordinates
	next      map[int32]int64 // folded below
	recreated bool            // there are watermarks of an older topic of that name
	read      int64
	total     int64
}

type place struct {
	log    projection.TopicPartition
	offset int64
}

func (v *verification) run(ctx context.Context) (*Report, error) {
	if err := v.prepare(ctx); err != nil {
		return nil, err
	}
	if err := v.catchUp(ctx); err != nil {
		return nil, err
	}
	report := &Report{Topic: v.cfg.Topic, TopicID: v.id.String(), Group: v.cfg.Group, Scope: v.scope(), Causes: map[Cause]int{}}
	if v.cfg.Selection.Sample > 0 {
		report.Seed = v.cfg.Selection.Seed
	}
	c := &comparison{v: v, report: report}
	if err := v.compare(ctx, c.everything); err != nil {
		return nil, err
	}
	for _, pause := range v.cfg.Rechecks {
		if !c.differs() {
			break
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
		if err := v.compare(ctx, c.again); err != nil {
			return nil, err
		}
	}
	c.conclude()
	report.Records = v.read
	return report, nil
}

func (v *verification) scope() string {
	switch {
	case len(v.cfg.Selection.Orders) > 0:
		return "orders"
	case v.cfg.Selection.Sample > 0:
		return "sample"
	}
	return "whole"
}

func (v *verification) prepare(ctx context.Context) error {
	ranges, err := v.cfg.Log.Ranges(ctx, v.cfg.Topic)
	if err != nil {
		return fmt.Errorf("reading the topic's bounds: %w", err)
	}
	v.ranges, v.next = map[int32]projection.LogRange{}, map[int32]int64{}
	for _, r := range ranges {
		v.id, v.ranges[r.Partition], v.next[r.Partition] = r.TopicID, r, r.From
	}
	v.fold, v.offsets = reference.NewFold(), map[place]bool{}
	return v.reading(ctx, func(s *snapshot) error {
		if v.decisions, err = compare.Decisions(ctx, s.tx); err != nil {
			return err
		}
		for _, d := range v.decisions {
			v.fold.Decide(d)
			if d.ByCoordinates {
				v.offsets[place{d.Log, d.Offset}] = true
			}
		}
		return nil
	})
}

// reading runs work on one moment of the database.
func (v *verification) reading(ctx context.Context, work func(*snapshot) error) error {
	return pgx.BeginTxFunc(ctx, v.cfg.DB, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return work(&snapshot{tx: tx, group: v.cfg.Group, topic: v.cfg.Topic, id: v.id})
	})
}

// catchUp folds up to the watermarks, until little is left.
func (v *verification) catchUp(ctx context.Context) error {
	for range maxRounds {
		var marks map[int32]account
		err := v.reading(ctx, func(s *snapshot) (err error) {
			marks, _, err = s.accounts(ctx)
			return err
		})
		if err != nil {
			return err
		}
		left, err := v.left(marks)
		if err != nil {
			return err
		}
		v.total = v.read + left
		if left <= tail {
			return nil
		}
		if err := v.advance(ctx, marks); err != nil {
			return err
		}
	}
	return fmt.Errorf("the members read faster than the topic can be folded: run it when they have caught up")
}

// left is how many offsets are to be folded. A watermark behind the fold cannot be
// compared with it any more.
func (v *verification) left(marks map[int32]account) (int64, error) {
	left := int64(0)
	for partition, mark := range marks {
		r, ok := v.ranges[partition]
		if !ok {
			continue
		}
		if mark.next < v.next[partition] && v.next[partition] > r.From {
			return 0, fmt.Errorf("the watermark of %s went back to offset %d while this ran: the database lost commits; run it again",
				r.TopicPartition, mark.next)
		}
		left += max(0, mark.next-v.next[partition])
	}
	return left, nil
}

// advance folds up to exactly the watermarks.
func (v *verification) advance(ctx context.Context, marks map[int32]account) error {
	for partition, from := range v.next {
		until := marks[partition].next
		if until <= from {
			continue
		}
		r := v.ranges[partition]
		r.From, r.Until = from, until
		passed := from
		err := v.cfg.Log.ReadRange(ctx, r, func(record projection.Record) error {
			v.read += record.Offset + 1 - passed
			passed = record.Offset + 1
			if v.chooser.wants(&record) || v.offsets[place{record.TopicPartition, record.Offset}] {
				v.fold.Add(record)
			}
			v.cfg.Progress(Progress{Records: v.read, Total: max(v.total, v.read), Elapsed: time.Since(v.began)})
			return ctx.Err()
		})
		if err != nil {
			return fmt.Errorf("folding %s: %w", r.TopicPartition, err)
		}
		v.read += until - passed
		v.next[partition] = until
		v.fold.Advance(r.TopicPartition, until)
	}
	return nil
}

// compare brings the fold to a snapshot's watermarks and compares.
func (v *verification) compare(ctx context.Context, with func(context.Context, *snapshot, map[int32]account, *expectation) error) error {
	if err := v.catchUp(ctx); err != nil {
		return err
	}
	return v.reading(ctx, func(s *snapshot) error {
		marks, other, err := s.accounts(ctx)
		if err != nil {
			return err
		}
		v.recreated = other
		decisions, err := compare.Decisions(ctx, s.tx)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(decisions, v.decisions) {
			return errDecisionsChanged
		}
		if _, err := v.left(marks); err != nil {
			return err
		}
		if err := v.advance(ctx, marks); err != nil {
			return err
		}
		return with(ctx, s, marks, expect(v.fold.Result()))
	})
}

// expectation is the fold's result, by order.
type expectation struct {
	*reference.Result
	ids     []string // every order that the fold knows, sorted
	parked  map[string][]reference.ParkedEvent
	letters map[string][]reference.DeadLetter
}

func expect(result *reference.Result) *expectation {
	e := &expectation{Result: result, parked: map[string][]reference.ParkedEvent{}, letters: map[string][]reference.DeadLetter{}}
	for _, p := range result.Parked {
		e.parked[p.OrderID] = append(e.parked[p.OrderID], p)
	}
	known := map[string]bool{}
	for i := range result.Orders {
		known[result.Orders[i].OrderID] = true
	}
	for _, l := range result.DeadLetters {
		e.letters[l.OrderID] = append(e.letters[l.OrderID], l)
		if l.OrderID != "" {
			known[l.OrderID] = true
		}
	}
	for id := range known {
		e.ids = append(e.ids, id)
	}
	slices.SortFunc(e.ids, strings.Compare)
	return e
}
