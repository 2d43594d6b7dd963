package generate

import (
	"container/heap"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/orderprojector/orderprojector/projection"
)

// maxDelayed bounds the records that wait to come late; beyond it the next one
// comes early.
const maxDelayed = 10_000

// Stream is a deterministic sequence of records. It is used by one goroutine.
type Stream struct {
	config  Config
	planner *planner
	mix     *rand.Rand
	headers []projection.Header
	prefix  string

	started int     // orders begun
	flight  []*plan // orders in flight
	idle    []*plan // to be used again
	delayed delayed

	sent      int // records returned
	postponed int // records that were ever delayed
}

// New returns the stream that config describes, or what is wrong with config.
func New(config Config) (*Stream, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	seed := strconv.FormatUint(config.Seed, 10)
	return &Stream{
		config:  config,
		planner: newPlanner(config),
		mix:     rand.New(rand.NewPCG(config.Seed, 1<<63)),
		headers: []projection.Header{{Key: HeaderGenerator, Value: []byte("seed=" + seed)}},
		prefix:  "o-" + strconv.FormatUint(config.Seed, 36) + "-",
	}, nil
}

// Started returns the number of orders begun so far.
func (s *Stream) Started() int { return s.started }

// Next returns the next record, or false at the end. The record's memory is
// not used again.
func (s *Stream) Next() (Record, bool) {
	for {
		for len(s.flight) < s.config.InFlight && s.started < s.config.Orders {
			s.begin()
		}
		if len(s.delayed) > 0 &&
			(s.delayed[0].due <= s.sent || len(s.delayed) > maxDelayed || len(s.flight) == 0) {
			return s.send(heap.Pop(&s.delayed).(*late).record)
		}
		if len(s.flight) == 0 {
			return Record{}, false
		}
		i := s.mix.IntN(len(s.flight))
		pl := s.flight[i]
		if pl.next == len(pl.records) { // also an order of which nothing is sent
			s.flight[i] = s.flight[len(s.flight)-1]
			s.flight = s.flight[:len(s.flight)-1]
			s.idle = append(s.idle, pl)
			continue
		}
		r := &pl.records[pl.next]
		pl.next++
		if r.delay > 0 {
			heap.Push(&s.delayed, &late{due: s.sent + r.delay, tie: s.postponed, record: r.Record})
			s.postponed++
			continue
		}
		return s.send(r.Record)
	}
}

func (s *Stream) send(r Record) (Record, bool) {
	s.sent++
	if len(r.Headers) == 0 {
		r.Headers = s.headers
	} else {
		r.Headers = slices.Concat(s.headers, r.Headers)
	}
	return r, true
}

// All returns the rest of the stream as a sequence.
func (s *Stream) All() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for r, ok := s.Next(); ok && yield(r); r, ok = s.Next() {
		}
	}
}

func (s *Stream) begin() {
	pl := &plan{}
	if n := len(s.idle); n > 0 {
		pl, s.idle = s.idle[n-1], s.idle[:n-1]
	}
	s.planner.write(pl, s.started, s.OrderID(s.started))
	s.started++
	s.flight = append(s.flight, pl)
}

// OrderID returns the ID of the n-th order, counted from 0.
func (s *Stream) OrderID(n int) string { return fmt.Sprintf("%s%07d", s.prefix, n+1) }
