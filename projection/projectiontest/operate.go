package projectiontest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/projection"
)

// OperatorConformance holds a store to what operators' actions rely on, by
// playing them on a small topic. open returns an empty store of its own for each call.
func OperatorConformance(t *testing.T, open func(t *testing.T) projection.OperatorStore) {
	for name, play := range map[string]func(*desk){
		"skip":                         playSkip,
		"skip ahead":                   playSkipAhead,
		"discard and restore":          playDiscard,
		"substitute":                   playSubstitute,
		"substitute of equal records":  playTwins,
		"substitute parked":            playSubstituteParked,
		"substitute for an unreadable": playUnreadable,
		"redrive after an upgrade":     playUpgrade,
		"redrive refused again":        playExhausted,
		"redrive stops itself":         playStop,
		"redrive resumed":              playResume,
		"redrive of a refused value":   playRefusedValue,
		"redriven, parked and refused": playReopened,
		"accept a gap":                 playAccept,
		"repair a gap":                 playRepair,
		"undo":                         playUndo,
		"undo with an archive":         playUndoArchived,
		"undo without its records":     playUndoGone,
	} {
		t.Run(name, func(t *testing.T) {
			d := &desk{T: t, store: open(t), by: projection.By{Actor: "ann", Comment: "because"}}
			d.open(nil)
			play(d)
		})
	}
}

// desk is a topic of one partition, its member and an operator.
type desk struct {
	*testing.T
	store     projection.OperatorStore
	by        projection.By
	decoder   projection.Decoder
	log       []projection.Record
	removed   map[int64]bool // offsets that the log no longer holds
	projector *projection.Projector
	member    projection.PartitionHandler
	operator  *projection.Operator
	next      int64
}

// open starts a member and an operator with a decoder.
func (d *desk) open(decoder projection.Decoder) {
	d.Helper()
	d.decoder = decoder
	var err error
	d.projector, err = projection.NewProjector(projection.ProjectorConfig{Group: "g", Store: d.store, Older: d, Decoder: decoder})
	d.must(err)
	d.member, _, err = d.projector.Assign(d.Context(), projection.Assignment{Group: "g", TopicPartition: deskLog(), Committed: projection.NoOffset})
	d.must(err)
	d.operator, err = projection.NewOperator(projection.OperatorConfig{Group: "g", Topic: "t", Store: d.store, Older: d, Log: d, Decoder: decoder})
	d.must(err)
}

func deskLog() projection.TopicPartition {
	return projection.TopicPartition{Topic: "t", TopicID: projection.TopicID{3}}
}

// ReadRecords implements projection.RecordReader.
func (d *desk) ReadRecords(_ context.Context, _ projection.TopicPartition, offsets []int64, found func(projection.Record)) error {
	for _, rec := range d.log {
		if slices.Contains(offsets, rec.Offset) && !d.removed[rec.Offset] {
			found(rec)
		}
	}
	return nil
}

// Ranges implements projection.Log.
func (d *desk) Ranges(context.Context, string) ([]projection.LogRange, error) {
	return []projection.LogRange{{TopicPartition: deskLog(), Until: d.next}}, nil
}

// ReadRange implements projection.Log.
func (d *desk) ReadRange(_ context.Context, r projection.LogRange, fn func(projection.Record) error) error {
	for _, rec := range d.log {
		if rec.Offset >= r.From && rec.Offset < r.Until && !d.removed[rec.Offset] {
			if err := fn(rec); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *desk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// refused expects an action to be refused, with a reason that contains a text.
func (d *desk) refused(err error, why string) {
	d.Helper()
	var refused *projection.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), why) {
		d.Errorf("got %v, want a refusal: %s", err, why)
	}
}

// append puts values into the log, keyed by the order, without applying them.
func (d *desk) append(orderID string, values ...string) []projection.Record {
	var records []projection.Record
	for _, value := range values {
		records = append(records, projection.Record{
			TopicPartition: deskLog(), Offset: d.next, Timestamp: at(1), Key: []byte(orderID), Value: []byte(value),
		})
		d.next++
	}
	d.log = append(d.log, records...)
	return records
}

// project appends values and applies them.
func (d *desk) project(orderID string, values ...string) {
	d.Helper()
	d.must(d.member.Handle(d.Context(), d.append(orderID, values...)))
}

// reread lets a new member read everything again.
func (d *desk) reread() {
	d.Helper()
	member, start, err := d.projector.Assign(d.Context(), projection.Assignment{Group: "g", TopicPartition: deskLog(), Committed: 0})
	d.must(err)
	d.member = member
	if start.Offset != 0 {
		d.Fatalf("starts at %d", start.Offset)
	}
	d.must(member.Handle(d.Context(), d.log))
}

// The events of an order of EUR 19.99.

func deskEvent(orderID string, version int, typ, data string) string {
	return fmt.Sprintf(`{"event_id":"%s-e%d","order_id":%q,"type":%q,"version":%d,"occurred_at":"2026-01-01T10:00:%02dZ","data":%s}`,
		orderID, version, orderID, typ, version, version%60, data)
}

func created(id string) string {
	return deskEvent(id, 1, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"19.99","currency":"EUR"}}`)
}

func amended(id string, version int) string {
	return deskEvent(id, version, "OrderAmended.v1", `{"total":{"amount":"19.99","currency":"EUR"}}`)
}

func paid(id string, version int) string {
	return deskEvent(id, version, "OrderPaid.v1", `{"payment_id":"p","amount":{"amount":"19.99","currency":"EUR"}}`)
}

// underpaid is illegal.
func underpaid(id string, version int) string {
	return deskEvent(id, version, "OrderPaid.v1", `{"payment_id":"p","amount":{"amount":"1.00","currency":"EUR"}}`)
}

func packed(id string, version int) string { return deskEvent(id, version, "OrderPacked.v1", `{}`) }

func shipped(id string, version int) string {
	return deskEvent(id, version, "OrderShipped.v1", `{"carrier":"x","tracking_number":"t"}`)
}

// wrapped is of a type that only the wrapping decoder knows: it takes it for OrderPacked.
func wrapped(id string, version int) string { return deskEvent(id, version, "OrderWrapped.v1", `{}`) }

// wrapping is the decoder of a later version of the program.
type wrapping struct{ projection.JSONDecoder }

// Decode implements projection.Decoder.
func (w wrapping) Decode(r *projection.Record) (projection.Envelope, error) {
	env, err := w.JSONDecoder.Decode(r)
	if err == nil && env.Type == "OrderWrapped.v1" {
		known := *r
		known.Value = []byte(strings.Replace(string(r.Value), "OrderWrapped.v1", "OrderPacked.v1", 1))
		as, err := w.JSONDecoder.Decode(&known)
		if err != nil {
			return env, err
		}
		env.Event = as.Event
	}
	return env, err
}

// row is an order's row, with what the store says of its decisions.
func (d *desk) row(id string) *projection.Row {
	d.Helper()
	var row *projection.Row
	d.must(d.store.InTx(d.Context(), func(ctx context.Context, tx projection.Tx) error {
		rows, err := tx.Rows(ctx, []string{id})
		row = rows[id]
		return err
	}))
	if row == nil {
		d.Fatalf("order %s has no row", id)
	}
	return row
}

// stands checks where an order is.
func (d *desk) stands(id, want string) {
	d.Helper()
	r := d.row(id)
	if got := fmt.Sprintf("%d %s %s", r.Version, r.State, r.Status); got != want {
		d.Errorf("order %s is %q, want %q", id, got, want)
	}
}

// letters returns an order's letters, by offset.
func (d *desk) letters(id string) []*projection.Letter {
	d.Helper()
	var letters []*projection.Letter
	d.must(d.store.InOperatorTx(d.Context(), func(ctx context.Context, tx projection.OperatorTx) (err error) {
		letters, err = tx.LettersOf(ctx, "g", id)
		return err
	}))
	slices.SortFunc(letters, func(a, b *projection.Letter) int { return cmp.Compare(a.Record.Offset, b.Record.Offset) })
	return letters
}

// said checks an order's letters: version, reason, status and attempts of each.
func (d *desk) said(id string, want ...string) []*projection.Letter {
	d.Helper()
	letters := d.letters(id)
	got := make([]string, len(letters))
	for i, l := range letters {
		got[i] = fmt.Sprintf("%d %s %s %d", l.Version, l.Reason, l.Status, l.Attempts)
	}
	if !slices.Equal(got, want) {
		d.Errorf("letters of %s: %q, want %q", id, got, want)
	}
	return letters
}

func drainedAs(drained []projection.DrainedEvent) string {
	var all []string
	for _, e := range drained {
		all = append(all, fmt.Sprintf("%d %s", e.Version, e.Outcome))
	}
	return strings.Join(all, ", ")
}

func (d *desk) same(what string, want, got any) {
	d.Helper()
	if fmt.Sprint(want) != fmt.Sprint(got) {
		d.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func playSkip(d *desk) {
	d.project("a", created("a"), underpaid("a", 2), packed("a", 3), shipped("a", 4))
	d.stands("a", "1 pending blocked")
	id := d.said("a", "2 illegal open 1")[0].ID
	before := d.row("a")

	_, err := d.operator.Discard(d.Context(), id, projection.DiscardRequest{Execute: true, By: d.by})
	d.refused(err, "holds order \"a\" back at version 2")
	result, err := d.operator.Discard(d.Context(), id, projection.DiscardRequest{Skip: true, By: d.by})
	d.must(err)
	d.same("cascade", "3 illegal", drainedAs(result.Cascade))
	d.said("a", "2 illegal open 1") // it was a dry run
	d.same("row after the dry run", before, d.row("a"))

	result, err = d.operator.Discard(d.Context(), id, projection.DiscardRequest{Skip: true, Execute: true, By: d.by})
	d.must(err)
	d.same("cascade", "3 illegal", drainedAs(result.Cascade))
	d.same("version", int64(2), result.After.Version)
	d.stands("a", "2 pending blocked")
	letters := d.said("a", "2 illegal discarded 1", "3 illegal open 1")
	entry := d.row("a").Ledger[1]
	d.same("ledger entry", projection.LedgerEntry{Version: 2, Type: projection.TypeSkipped, State: "pending", Partition: -1, Offset: -1}, entry)

	_, err = d.operator.Restore(d.Context(), id, d.by)
	d.refused(err, "skipped by decision")
	again, err := d.operator.Discard(d.Context(), id, projection.DiscardRequest{Skip: true, Execute: true, By: d.by})
	d.must(err)
	d.same("already", true, again.Already)

	d.project("a", paid("a", 2)) // too late: the version is skipped
	d.stands("a", "2 pending blocked")
	_, err = d.operator.Discard(d.Context(), letters[1].ID, projection.DiscardRequest{Skip: true, Execute: true, By: d.by})
	d.must(err)
	d.stands("a", "3 pending blocked")
	d.reread()
	d.stands("a", "3 pending blocked")
	d.said("a", "2 illegal discarded 1", "3 illegal discarded 1", "4 illegal open 1")
}

func playSkipAhead(d *desk) {
	broken := deskEvent("a", 3, "OrderPaid.v1", `{"payment_id":"p"}`)
	d.project("a", created("a"), broken)
	id := d.said("a", "3 invalid open 1")[0].ID
	_, err := d.operator.Discard(d.Context(), id, projection.DiscardRequest{Skip: true, Execute: true, By: d.by})
	d.must(err)
	d.stands("a", "1 pending ok")
	d.project("b", created("b"))                                  // the cache is warm
	d.project("a", amended("a", 2), paid("a", 3), packed("a", 4)) // in one batch
	d.stands("a", "3 pending blocked")
	d.project("a", paid("a", 4))
	d.stands("a", "4 paid ok")
}

func playDiscard(d *desk) {
	d.project("a", created("a"), deskEvent("a", 1, "OrderCreated.v1", `{"customer_id":"other","total":{"amount":"1.00","currency":"EUR"}}`), `{`)
	letters := d.said("a", "1 conflict open 1", "0 invalid open 1")
	for _, l := range letters {
		_, err := d.operator.Discard(d.Context(), l.ID, projection.DiscardRequest{Execute: true, By: d.by})
		d.must(err)
	}
	d.said("a", "1 conflict discarded 1", "0 invalid discarded 1")
	_, err := d.operator.Restore(d.Context(), letters[0].ID, d.by)
	d.must(err)
	d.said("a", "1 conflict open 1", "0 invalid discarded 1")
	_, err = d.operator.Restore(d.Context(), letters[0].ID, d.by)
	d.refused(err, "it is open")
	_, err = d.operator.Discard(d.Context(), 4711, projection.DiscardRequest{Execute: true, By: d.by})
	var missing *projection.NotFoundError
	if !errors.As(err, &missing) {
		d.Errorf("got %v, want a *NotFoundError", err)
	}
	_, err = d.operator.Discard(d.Context(), letters[0].ID, projection.DiscardRequest{Execute: true, By: projection.By{Actor: "ann"}})
	if err == nil {
		d.Error("discarded without a comment")
	}
	d.stands("a", "1 pending ok")
}

func (d *desk) redrive(req projection.RedriveRequest) (projection.RedriveReport, []projection.RedriveResult, error) {
	var results []projection.RedriveResult
	req.By = d.by
	each := req.Each
	req.Each = func(r projection.RedriveResult) {
		results = append(results, r)
		if each != nil {
			each(r)
		}
	}
	report, err := d.operator.Redrive(d.Context(), req)
	return report, results, err
}

func only(id int64) projection.LetterSelection { return projection.LetterSelection{IDs: []int64{id}} }

func playSubstitute(d *desk) {
	d.project("a", created("a"), underpaid("a", 2), packed("a", 3))
	id := d.said("a", "2 illegal open 1")[0].ID
	for substitute, why := range map[string]string{
		"":                      "substitute is",
		"{}":                    "invalid",
		paid("b", 2):            "order_id \"b\" differs",
		paid("a", 3):            "version 3",
		underpaid("a", 2):       "does not help: illegal",
		wrapped("a", 2):         "does not help: unsupported",
		created("a") + "x":      "invalid",
		amended("a", 2) + " []": "invalid",
	} {
		_, _, err := d.redrive(projection.RedriveRequest{Selection: only(id), Substitute: []byte(substitute), Execute: true})
		d.refused(err, why)
	}
	d.said("a", "2 illegal open 1")
	_, results, err := d.redrive(projection.RedriveRequest{Selection: only(id), Substitute: []byte(paid("a", 2))})
	d.must(err)
	d.same("dry run", "applied", results[0].Outcome)
	d.said("a", "2 illegal open 1")
	report, results, err := d.redrive(projection.RedriveRequest{Selection: only(id), Substitute: []byte(paid("a", 2)), Execute: true})
	d.must(err)
	d.same("drained", "3 applied", drainedAs(results[0].Drained))
	d.same("redriven", 1, report.Redriven)
	d.stands("a", "3 packed ok")
	d.said("a", "2 illegal redriven 1")
	entry := d.row("a").Ledger[1]
	d.same("coordinates of the original", int64(1), entry.Offset)
	d.same("digest of the original", projection.DigestOf([]byte(underpaid("a", 2))), entry.Digest)
	d.project("a", underpaid("a", 2), paid("a", 2)) // the original again; and a producer's own correction
	d.reread()
	d.stands("a", "3 packed ok")
	d.said("a", "2 illegal redriven 1")
	_, _, err = d.redrive(projection.RedriveRequest{Selection: only(id)})
	d.refused(err, "is redriven")
}

func playTwins(d *desk) {
	d.project("a", created("a"), underpaid("a", 2), underpaid("a", 2))
	second := d.said("a", "2 illegal open 1", "2 illegal open 1")[1].ID
	_, _, err := d.redrive(projection.RedriveRequest{Selection: only(second), Substitute: []byte(paid("a", 2)), Execute: true})
	d.must(err)
	d.stands("a", "2 paid ok")
	d.said("a", "2 illegal redriven 1", "2 illegal superseded 1")
	d.same("the first one counts", int64(1), d.row("a").Ledger[1].Offset)
}

func playSubstituteParked(d *desk) {
	broken := deskEvent("a", 3, "OrderPaid.v1", `{"payment_id":"p"}`)
	d.project("a", created("a"), broken)
	id := d.said("a", "3 invalid open 1")[0].ID
	_, results, err := d.redrive(projection.RedriveRequest{Selection: only(id), Substitute: []byte(paid("a", 3)), Execute: true})
	d.must(err)
	d.same("outcome", "parked", results[0].Outcome)
	d.stands("a", "1 pending waiting")
	d.said("a", "3 invalid redriven 1")
	d.project("a", amended("a", 2))
	d.stands("a", "3 paid ok")
	d.same("digest of the original", projection.DigestOf([]byte(broken)), d.row("a").Ledger[2].Digest)
	d.reread()
	d.stands("a", "3 paid ok")
	d.said("a", "3 invalid redriven 1")
}

func playUnreadable(d *desk) {
	d.project("a", created("a"), "garbage", "garbage")
	letters := d.said("a", "0 invalid open 1", "0 invalid open 1")
	_, _, err := d.redrive(projection.RedriveRequest{Selection: only(letters[0].ID), Substitute: []byte(paid("a", 2)), Execute: true})
	d.must(err)
	d.stands("a", "2 paid ok")
	d.said("a", "0 invalid redriven 1", "0 invalid open 1")
	d.reread()
	d.stands("a", "2 paid ok")
	d.said("a", "0 invalid redriven 1", "0 invalid open 1")
	_, _, err = d.redrive(projection.RedriveRequest{Selection: only(letters[1].ID), Substitute: []byte(paid("a", 2)), Execute: true})
	d.refused(err, "nothing new")
}

func playUpgrade(d *desk) {
	const orders = 40
	for i := range orders {
		id := fmt.Sprintf("o-%02d", i)
		d.project(id, created(id), paid(id, 2), wrapped(id, 3), shipped(id, 4))
		d.stands(id, "2 paid blocked")
	}
	d.open(wrapping{})
	report, _, err := d.redrive(projection.RedriveRequest{Selection: projection.LetterSelection{Reason: "unsupported"}})
	d.must(err)
	d.same("dry run", orders, report.Redriven)
	d.stands("o-00", "2 paid blocked")
	report, results, err := d.redrive(projection.RedriveRequest{Selection: projection.LetterSelection{All: true}, Execute: true})
	d.must(err)
	d.same("redriven", orders, report.Redriven)
	d.same("in order", "o-39", results[orders-1].OrderID)
	for i := range orders {
		id := fmt.Sprintf("o-%02d", i)
		d.stands(id, "4 shipped ok")
		d.said(id, "3 unsupported redriven 1")
	}
	report, _, err = d.redrive(projection.RedriveRequest{Selection: projection.LetterSelection{All: true}, Execute: true})
	d.must(err)
	d.same("nothing is left", 0, report.Tried)
}

func playExhausted(d *desk) {
	d.project("a", created("a"), underpaid("a", 2))
	id := d.said("a", "2 illegal open 1")[0].ID
	all := projection.RedriveRequest{Selection: projection.LetterSelection{All: true}, Execute: true, MaxAttempts: 3}
	report, _, err := d.redrive(all)
	d.must(err)
	d.same("refused", 1, report.Refused)
	d.said("a", "2 illegal open 2")
	report, _, err = d.redrive(all)
	d.must(err)
	d.same("exhausted", 1, report.Exhausted)
	d.said("a", "2 illegal exhausted 3")
	d.stands("a", "1 pending blocked")
	report, _, err = d.redrive(all)
	d.must(err)
	d.same("not tried by itself", 0, report.Tried)
	report, _, err = d.redrive(projection.RedriveRequest{Selection: only(id), Execute: true, MaxAttempts: 3})
	d.must(err)
	d.same("tried by its ID", 1, report.Refused)
	d.said("a", "2 illegal exhausted 4")
	d.project("a", paid("a", 2)) // a correction by the producer still closes it
	d.stands("a", "2 paid ok")
	d.said("a", "2 illegal superseded 4")
}

func playStop(d *desk) {
	for i := range 60 {
		id := fmt.Sprintf("o-%02d", i)
		d.project(id, created(id), underpaid(id, 2))
	}
	report, _, err := d.redrive(projection.RedriveRequest{Selection: projection.LetterSelection{Reason: "illegal"}, Execute: true})
	d.must(err)
	d.same("stopped after", 20, report.Tried)
	if report.Stopped == "" || report.JobID == 0 {
		d.Errorf("not stopped: %+v", report)
	}
	report, _, err = d.redrive(projection.RedriveRequest{Resume: report.JobID, Execute: true, MaxFailureRatio: 1})
	d.must(err)
	d.same("the others", 40, report.Tried)
	_, _, err = d.redrive(projection.RedriveRequest{Resume: report.JobID, Execute: true})
	d.refused(err, "is done")
}

func playResume(d *desk) {
	const orders = 90
	for i := range orders {
		id := fmt.Sprintf("o-%02d", i)
		d.project(id, created(id), paid(id, 2), wrapped(id, 3))
	}
	d.open(wrapping{})
	ctx, cancel := context.WithCancel(d.Context())
	tried := 0
	report, err := d.operator.Redrive(ctx, projection.RedriveRequest{
		Selection: projection.LetterSelection{All: true}, Execute: true, By: d.by,
		Each: func(projection.RedriveResult) {
			if tried++; tried == 30 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || report.JobID == 0 {
		d.Fatalf("got %v, report %+v", err, report)
	}
	d.project("later", created("later"), underpaid("later", 2)) // not part of the frozen selection
	report, _, err = d.redrive(projection.RedriveRequest{Resume: report.JobID, Execute: true})
	d.must(err)
	d.same("each once", orders, int(report.Tried)+tried)
	for i := range orders {
		d.stands(fmt.Sprintf("o-%02d", i), "3 packed ok")
	}
	d.said("later", "2 illegal open 1")
}

// playRefusedValue has an order whose letter the deciding code cannot bear.
func playRefusedValue(d *desk) {
	d.project("a", created("a"), paid("a", 2), wrapped("a", 3))
	d.project("b", created("b"), paid("b", 2), wrapped("b", 3))
	d.open(panicking{})
	report, _, err := d.redrive(projection.RedriveRequest{Selection: projection.LetterSelection{All: true}, Execute: true, MaxFailureRatio: 1})
	d.must(err)
	d.same("one costs nobody else", "1 1", fmt.Sprint(report.Redriven, " ", report.Refused))
	d.stands("a", "2 paid blocked")
	d.stands("b", "3 packed ok")
	d.said("a", "3 invalid open 2")
}

// panicking is a wrapping decoder that panics at order a.
type panicking struct{ wrapping }

// Decode implements projection.Decoder.
func (p panicking) Decode(r *projection.Record) (projection.Envelope, error) {
	if strings.Contains(string(r.Value), "OrderWrapped") && string(r.Key) == "a" {
		panic("cannot bear it")
	}
	return p.wrapping.Decode(r)
}

func playReopened(d *desk) {
	d.open(narrow{})
	d.project("a", created("a"), packed("a", 3))
	d.said("a", "3 invalid open 1")
	d.open(nil)
	report, _, err := d.redrive(projection.RedriveRequest{Selection: projection.LetterSelection{All: true}, Execute: true})
	d.must(err)
	d.same("parked", int64(1), report.Outcomes["parked"])
	d.said("a", "3 invalid redriven 1")
	d.project("a", amended("a", 2))
	d.stands("a", "2 pending blocked") // packing what is not paid is illegal
	d.said("a", "3 illegal open 2")
}

// narrow is a decoder that takes OrderPacked for invalid.
type narrow struct{ projection.JSONDecoder }

// Decode implements projection.Decoder.
func (n narrow) Decode(r *projection.Record) (projection.Envelope, error) {
	env, err := n.JSONDecoder.Decode(r)
	if err == nil && env.Type == "OrderPacked.v1" {
		return env, &projection.DecodeError{Detail: "too narrow", OrderID: env.OrderID, EventID: env.EventID, Version: env.Version}
	}
	return env, err
}

func playAccept(d *desk) {
	d.project("a", created("a"), paid("a", 4), packed("a", 6))
	d.stands("a", "1 pending waiting")
	accept := func(from, to int64, execute bool) (projection.GapResult, error) {
		return d.operator.AcceptGap(d.Context(), "a", from, to, execute, d.by)
	}
	for _, wrong := range [][2]int64{{3, 3}, {1, 2}, {2, 4}, {2, 1}, {2, 1 << 60}} {
		_, err := accept(wrong[0], wrong[1], true)
		d.refused(err, "accepting the gap")
	}
	result, err := accept(2, 3, false)
	d.must(err)
	d.same("dry run", "4 applied", drainedAs(result.Drained))
	d.stands("a", "1 pending waiting")
	_, err = accept(2, 2, true)
	d.must(err)
	d.stands("a", "2 pending waiting")
	result, err = accept(3, 3, true)
	d.must(err)
	d.same("drained", "4 applied", drainedAs(result.Drained))
	d.stands("a", "4 paid waiting")
	d.project("a", amended("a", 3)) // stale
	d.project("a", underpaid("a", 5))
	d.stands("a", "4 paid blocked")
	_, err = accept(5, 5, true)
	d.refused(err, "dead letter")
	_, err = d.operator.AcceptGap(d.Context(), "none", 1, 1, true, d.by)
	var missing *projection.NotFoundError
	if !errors.As(err, &missing) {
		d.Errorf("got %v, want a *NotFoundError", err)
	}

	far := deskEvent("far", 20_000, "OrderPacked.v1", `{}`)
	d.project("far", created("far"), far)
	_, err = d.operator.AcceptGap(d.Context(), "far", 2, 19_999, true, d.by)
	d.refused(err, "one decision can pass")
	_, err = d.operator.AcceptGap(d.Context(), "far", 2, 2+projection.MaxDecidedVersions-1, true, d.by)
	d.must(err)
	d.stands("far", fmt.Sprintf("%d pending waiting", 1+projection.MaxDecidedVersions))
	d.same("entries in the row", projection.LedgerInRow, len(d.row("far").Ledger))
}

func playRepair(d *desk) {
	records := d.append("a", created("a"), paid("a", 2), packed("a", 3), shipped("a", 5))
	d.must(d.member.Handle(d.Context(), []projection.Record{records[0], records[2], records[3]})) // the second one is passed over
	d.stands("a", "1 pending waiting")
	repair := func(execute bool) (projection.GapResult, error) {
		d.Helper()
		results, failed, err := d.operator.RepairGaps(d.Context(), []string{"a"}, execute, d.by)
		d.must(err)
		return results["a"], failed["a"]
	}
	_, err := repair(false)
	d.must(err)
	d.stands("a", "1 pending waiting")
	result, err := repair(true)
	d.must(err)
	d.same("found", "[{2 a-e2 0 1 applied }]", result.Found)
	d.same("drained", "3 applied", drainedAs(result.Drained))
	d.stands("a", "3 packed waiting")
	_, err = repair(true)
	d.refused(err, "the log does not hold version 4")
	d.append("a", amended("a", 4))
	_, err = repair(true)
	d.refused(err, "not read yet")
}

func playUndo(d *desk) {
	d.project("a", created("a"), underpaid("a", 2), packed("a", 3), shipped("a", 4))
	id := d.letters("a")[0].ID
	skip, err := d.operator.Discard(d.Context(), id, projection.DiscardRequest{Skip: true, Execute: true, By: d.by})
	d.must(err)
	d.stands("a", "2 pending blocked")
	_, result, err := d.operator.Undo(d.Context(), skip.DecisionID, false, d.by)
	d.must(err)
	d.same("dry run", int64(1), result.After.Version)
	d.stands("a", "2 pending blocked")
	_, _, err = d.operator.Undo(d.Context(), skip.DecisionID, true, d.by)
	d.must(err)
	d.stands("a", "1 pending blocked")
	d.said("a", "2 illegal open 1", "3 illegal redriven 1")
	d.same("decided", false, d.row("a").Decided)
	_, _, err = d.operator.Undo(d.Context(), skip.DecisionID, true, d.by)
	d.refused(err, "undone already")

	_, _, err = d.redrive(projection.RedriveRequest{Selection: only(id), Substitute: []byte(paid("a", 2)), Execute: true})
	d.must(err)
	d.stands("a", "4 shipped ok")
	var decision int64
	d.must(d.store.InTx(d.Context(), func(ctx context.Context, tx projection.Tx) error {
		all, err := tx.Decisions(ctx, []string{"a"})
		d.same("decisions", 1, len(all["a"]))
		decision = all["a"][0].ID
		return err
	}))
	_, _, err = d.operator.Undo(d.Context(), decision, true, d.by)
	d.must(err)
	d.stands("a", "1 pending blocked")
	d.said("a", "2 illegal open 1", "3 illegal redriven 1")
	d.project("a", paid("a", 2))
	d.stands("a", "4 shipped ok")
	d.said("a", "2 illegal superseded 1", "3 illegal redriven 1")
}

func playUndoArchived(d *desk) {
	const versions = 150
	values := []string{created("a")}
	for v := 2; v <= versions; v++ {
		if v != 40 {
			values = append(values, amended("a", v))
		}
	}
	d.project("a", values...)
	d.stands("a", "39 pending waiting")
	accepted, err := d.operator.AcceptGap(d.Context(), "a", 40, 40, true, d.by)
	d.must(err)
	d.stands("a", fmt.Sprintf("%d pending ok", versions))
	d.project("a", amended("a", 40)) // stale for now
	_, result, err := d.operator.Undo(d.Context(), accepted.DecisionID, true, d.by)
	d.must(err)
	d.same("records", versions, result.Records)
	d.stands("a", fmt.Sprintf("%d pending ok", versions))
	var ledger []projection.LedgerEntry
	d.must(d.store.InOperatorTx(d.Context(), func(ctx context.Context, tx projection.OperatorTx) (err error) {
		ledger, err = tx.Ledger(ctx, "a")
		return err
	}))
	for i, e := range ledger {
		if e.Version != int64(i+1) || e.Skipped() {
			d.Errorf("entry %d: %+v", i, e)
		}
	}
	d.same("ledger", versions, len(ledger))
	d.same("entries in the row", projection.LedgerInRow, len(d.row("a").Ledger))
	d.project("a", amended("a", 7), amended("a", versions+1))
	d.stands("a", fmt.Sprintf("%d pending ok", versions+1))
	_, err = d.operator.Reproject(d.Context(), "a", true, d.by)
	d.must(err)
	d.stands("a", fmt.Sprintf("%d pending ok", versions+1))
}

func playUndoGone(d *desk) {
	d.project("a", created("a"), amended("a", 2), amended("a", 4))
	accepted, err := d.operator.AcceptGap(d.Context(), "a", 3, 3, true, d.by)
	d.must(err)
	d.removed = map[int64]bool{0: true}
	_, _, err = d.operator.Undo(d.Context(), accepted.DecisionID, true, d.by)
	d.refused(err, "no longer holds version 1")
	d.stands("a", "4 pending ok")
}
