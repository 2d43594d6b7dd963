package reference

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// topic feeds a fold with records of one partition.
type topic struct {
	t      *testing.T
	fold   *Fold
	log    projection.TopicPartition
	offset int64
}

func newTopic(t *testing.T) *topic {
	return &topic{t: t, fold: NewFold(), log: projection.TopicPartition{Topic: "orders.events", Partition: 2}}
}

// add folds a record with its order's key and expects a first decision.
func (tp *topic) add(want projection.Outcome, key, value string) {
	tp.t.Helper()
	tp.raw(want, []byte(key), []byte(value))
}

func (tp *topic) raw(want projection.Outcome, key, value []byte) {
	tp.t.Helper()
	r := projection.Record{TopicPartition: tp.log, Offset: tp.offset, Key: key, Value: value}
	tp.offset++
	if got := tp.fold.Add(r); got != want {
		tp.t.Errorf("offset %d: %s, want %s: %.200s", r.Offset, got, want, value)
	}
}

// order reads the row and checks the parts that every scenario names.
func (tp *topic) order(id string, version int64, state, status string) *Order {
	tp.t.Helper()
	row := tp.fold.Result().Order(id)
	if row == nil {
		tp.t.Fatalf("order %s is missing", id)
	}
	if row.Version != version || row.State != state || row.Status != status {
		tp.t.Errorf("order %s: version %d, %q, %s; want version %d, %q, %s",
			id, row.Version, row.State, row.Status, version, state, status)
	}
	if want := map[bool]int64{true: 0, false: version + 1}[status == "ok"]; row.WaitingForVersion != want {
		tp.t.Errorf("order %s waits for version %d, want %d", id, row.WaitingForVersion, want)
	}
	return row
}

// letters lists the dead letters as "offset reason order/version/event blocks status".
func (tp *topic) letters(want ...string) {
	tp.t.Helper()
	var got []string
	for _, l := range tp.fold.Result().DeadLetters {
		got = append(got, fmt.Sprintf("%d %s %s/%d/%s %t %s", l.Offset, l.Reason, l.OrderID, l.Version, l.EventID, l.Blocks, l.Status))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		tp.t.Errorf("letters:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const second = "2026-01-01T10:00:%02dZ"

func ev(id string, version int, typ, data string) string {
	return evOf("o", id, version, typ, data)
}

func evOf(orderID, id string, version int, typ, data string) string {
	return fmt.Sprintf(`{"event_id":%q,"order_id":%q,"type":%q,"version":%d,"occurred_at":%q,"data":%s}`,
		id, orderID, typ, version, fmt.Sprintf(second, version), data)
}

func create(id string) string {
	return ev(id, 1, "OrderCreated.v1", `{"customer_id":"c","total":{"amount":"19.99","currency":"EUR"}}`)
}

func pay(id string, version int) string {
	return ev(id, version, "OrderPaid.v1", `{"payment_id":"p","amount":{"amount":"19.99","currency":"EUR"}}`)
}

func pack(id string, version int) string    { return ev(id, version, "OrderPacked.v1", `{}`) }
func deliver(id string, version int) string { return ev(id, version, "OrderDelivered.v1", `{}`) }

func ship(id string, version int) string {
	return ev(id, version, "OrderShipped.v1", `{"carrier":"DHL","tracking_number":"t"}`)
}

func refund(id string, version int, amount string) string {
	return ev(id, version, "OrderRefunded.v1", `{"refund_id":"r","amount":{"amount":"`+amount+`","currency":"EUR"}}`)
}

func TestALife(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	for _, value := range []string{
		create("e1"), ev("e2", 2, "OrderAmended", `{"total":{"amount":2e1,"currency":"EUR"}}`),
		ev("e3", 3, "OrderPaid.v1", `{"payment_id":"p","amount":{"amount":20,"currency":"EUR"}}`),
		pack("e4", 4), ship("e5", 5), deliver("e6", 6), refund("e7", 7, "0.01"), refund("e8", 8, "19.990"),
	} {
		tp.add(projection.Applied, "o", value)
	}
	got := tp.order("o", 8, "refunded", "ok")
	want := Order{
		OrderID: "o", CustomerID: "c", State: "refunded", Version: 8, Currency: "EUR", TotalMinor: 2000, PaidMinor: 2000,
		RefundedMinor: 2000, LastEventID: "e8", Status: "ok", At: Coordinates{"orders.events", 2, 7},
		CreatedAt: time.Date(2026, 1, 1, 10, 0, 1, 0, time.UTC), UpdatedAt: time.Date(2026, 1, 1, 10, 0, 8, 0, time.UTC),
	}
	ledger := got.Ledger
	got.Ledger = nil
	if fmt.Sprint(*got) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
	var states []string
	for i, e := range ledger {
		if e.Version != int64(i+1) || e.Offset != int64(i) || e.Partition != 2 || e.EventID != fmt.Sprint("e", i+1) {
			t.Errorf("entry %d: %+v", i, e)
		}
		states = append(states, e.State)
	}
	if got := strings.Join(states, " "); got != "pending pending paid packed shipped delivered delivered refunded" {
		t.Errorf("states: %s", got)
	}
	if ledger[1].Type != "OrderAmended" || ledger[0].Digest != digestOf([]byte(create("e1"))) {
		t.Errorf("entries: %+v", ledger[:2])
	}
	tp.letters()
}

// Every state meets every event; what is legal is written out here once more.
func TestTransitions(t *testing.T) {
	t.Parallel()
	paths := map[string]string{ // how to get there, by the first letters
		"(none)": "", "pending": "C", "paid": "CP", "packed": "CPK", "shipped": "CPS", "delivered": "CPSD",
		"cancelled": "CPX", "returned": "CPSR", "refunded": "CPF",
	}
	names := map[byte]string{
		'C': "OrderCreated", 'A': "OrderAmended", 'P': "OrderPaid", 'K': "OrderPacked", 'S': "OrderShipped",
		'D': "OrderDelivered", 'X': "OrderCancelled", 'R': "OrderReturned", 'F': "OrderRefunded", 'f': "OrderRefunded",
	}
	legal := map[string]string{ // event letter and what follows
		"(none)": "C:pending", "pending": "A:pending P:paid X:cancelled",
		"paid":    "K:packed S:shipped X:cancelled F:refunded f:paid",
		"packed":  "S:shipped X:cancelled F:refunded f:packed",
		"shipped": "D:delivered R:returned F:refunded f:shipped", "delivered": "R:returned F:refunded f:delivered",
		"cancelled": "F:refunded f:cancelled", "returned": "F:refunded f:returned", "refunded": "",
	}
	make := func(letter byte) event {
		e := event{known: names[letter], customerID: "c", amount: money{100, "EUR"}}
		if letter == 'f' {
			e.amount.minor = 40
		}
		return e
	}
	for state, path := range paths {
		var o order
		for i := range len(path) {
			next, ok := o.apply(make(path[i]))
			if !ok {
				t.Fatalf("%s: no way along %s", state, path)
			}
			o = next
		}
		for letter := range names {
			want := ""
			for _, arrow := range strings.Fields(legal[state]) {
				if arrow[0] == letter {
					want = arrow[2:]
				}
			}
			next, ok := o.apply(make(letter))
			if ok != (want != "") || ok && next.state != want {
				t.Errorf("%s + %s(%c): %q, %t; want %q", state, names[letter], letter, next.state, ok, want)
			}
		}
	}
}

func TestBusinessRules(t *testing.T) {
	t.Parallel()
	o := order{state: "pending", currency: "EUR", total: 100}
	paidOrder := order{state: "paid", currency: "EUR", total: 100, paid: 100, refunded: 60}
	for name, c := range map[string]struct {
		order order
		event event
		want  bool
	}{
		"amended in another currency":  {o, event{known: "OrderAmended", amount: money{100, "USD"}}, false},
		"paid too little":              {o, event{known: "OrderPaid", amount: money{99, "EUR"}}, false},
		"paid too much":                {o, event{known: "OrderPaid", amount: money{101, "EUR"}}, false},
		"paid in another currency":     {o, event{known: "OrderPaid", amount: money{100, "USD"}}, false},
		"refunded too much":            {paidOrder, event{known: "OrderRefunded", amount: money{41, "EUR"}}, false},
		"refunded the rest":            {paidOrder, event{known: "OrderRefunded", amount: money{40, "EUR"}}, true},
		"refunded in another currency": {paidOrder, event{known: "OrderRefunded", amount: money{40, "USD"}}, false},
		"an unknown event":             {paidOrder, event{}, false},
	} {
		if _, ok := c.order.apply(c.event); ok != c.want {
			t.Errorf("%s: %t, want %t", name, ok, c.want)
		}
	}
}

func TestRepeats(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	tp.add(projection.Applied, "o", create("e1"))
	tp.add(projection.Applied, "o", pay("e2", 2))
	tp.add(projection.Duplicate, "o", create("e1"))
	tp.add(projection.Duplicate, "o", pay("e2", 2))
	tp.raw(projection.Duplicate, nil, []byte(pay("e2", 2)))
	// The same event, written otherwise.
	tp.add(projection.Duplicate, "o", `{ "data" : {"amount":{"currency":"EUR","amount":"19.99"}, "payment_\u0069d":"p"},
		"occurred_at":"2026-01-01t12:00:02.0000009+02:00", "version":2, "type":"OrderPaid", "order_id":"o", "event_id":"e2", "trace":1 }`)
	tp.letters()
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	tp.add(projection.Applied, "o", create("e1"))
	tp.add(projection.Applied, "o", pay("e2", 2))
	tp.add(projection.Conflict, "o", pay("other", 2))                                      // same version, other event ID
	tp.add(projection.Conflict, "o", strings.Replace(pay("e2", 2), `"p"`, `"q"`, 1))       // other content
	tp.add(projection.Conflict, "o", strings.Replace(pay("e2", 2), `"19.99"`, `19.99`, 1)) // a string is no number
	tp.add(projection.Conflict, "o", strings.Replace(pay("e2", 2), `02Z`, `02.000001Z`, 1))
	tp.add(projection.Conflict, "o", strings.Replace(pay("e2", 2), `"p"`, `"p","note":0`, 1))
	tp.add(projection.Conflict, "o", strings.Replace(pay("e2", 2), `.v1`, `.v2`, 1))
	tp.add(projection.Conflict, "o", pack("e2", 3)) // event ID used at another version
	tp.add(projection.Conflict, "o", ev("e1", 3, "OrderGiftWrapped", `{}`))
	tp.add(projection.Applied, "o", pack("e3", 3))
	tp.order("o", 3, "packed", "ok")
	var want []string
	for i, id := range []string{"2/other", "2/e2", "2/e2", "2/e2", "2/e2", "2/e2", "3/e2", "3/e1"} {
		want = append(want, fmt.Sprintf("%d conflict o/%s false open", i+2, id))
	}
	tp.letters(want...)
}

func TestNumbersAreComparedExactly(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	with := func(n string) string {
		return ev("e1", 1, "OrderCreated", `{"customer_id":"c","total":{"amount":`+n+`,"currency":"EUR"},"x":`+n+`}`)
	}
	tp.add(projection.Applied, "o", with("1"))
	for _, n := range []string{"1.0", "1e0", "10e-1", "0.1e1", "1.00E+0"} {
		tp.add(projection.Duplicate, "o", with(n))
	}
	tp.add(projection.Conflict, "o", strings.Replace(with("1"), `"x":1`, `"x":1.0000000000000000000000001`, 1))
	tp.add(projection.Conflict, "o", strings.Replace(with("1"), `"x":1`, `"x":-1`, 1))
	huge := func(n string) string {
		return strings.Replace(ev("e2", 2, "OrderAmended", `{"total":{"amount":1,"currency":"EUR"},"x":0}`), `"x":0`, `"x":`+n, 1)
	}
	tp.add(projection.Applied, "o", huge("1e99999999999"))
	tp.add(projection.Duplicate, "o", huge("10.0e99999999998"))
	tp.add(projection.Conflict, "o", huge("1e99999999998"))
	tp.add(projection.Conflict, "o", strings.Replace(with("1"), `"x":1`, `"x":9007199254740993`, 1))
}

func TestOutOfOrder(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	tp.add(projection.Parked, "o", ship("e4", 4))
	tp.add(projection.Parked, "o", pack("e3", 3))
	tp.order("o", 0, "", "waiting")
	tp.add(projection.Parked, "o", pack("e3", 3)) // again: still one
	tp.add(projection.Applied, "o", create("e1"))
	tp.order("o", 1, "pending", "waiting")
	if parked := tp.fold.Result().Parked; len(parked) != 2 || parked[0].At.Offset != 1 || parked[1].At.Offset != 0 {
		t.Errorf("parked: %+v", parked)
	}
	tp.add(projection.Applied, "o", pay("e2", 2))
	row := tp.order("o", 4, "shipped", "ok")
	if row.Ledger[2].Offset != 1 || row.At.Offset != 0 {
		t.Errorf("coordinates: %+v, %+v", row.Ledger[2], row.At)
	}
	if len(tp.fold.Result().Parked) != 0 {
		t.Error("something is still parked")
	}
	counts := tp.fold.Result().Partitions[tp.log].Counts
	if counts[projection.Parked] != 3 || counts[projection.Applied] != 2 || counts.Total() != 5 {
		t.Errorf("counts: %v", counts)
	}
	tp.letters()
}

func TestParkedEventsThatTurnOutBad(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	tp.add(projection.Parked, "o", pack("other", 3))                     // 0: claims version 3 first
	tp.add(projection.Parked, "o", deliver("bad", 3))                    // 1: illegal there
	tp.add(projection.Parked, "o", " "+pack("other", 3))                 // 2: the same event, other bytes
	tp.add(projection.Parked, "o", ev("new", 4, "OrderPaid.v2", `null`)) // 3: unsupported there
	tp.add(projection.Parked, "o", deliver("e5", 5))                     // 4: waits for ever
	tp.add(projection.Parked, "o", ship("e1", 4))                        // 5: uses an ID that will be used
	tp.add(projection.Applied, "o", create("e1"))
	tp.add(projection.Applied, "o", pay("e2", 2))
	tp.order("o", 3, "packed", "blocked")
	tp.letters(
		"1 conflict o/3/bad false open",
		"3 unsupported o/4/new true open",
		"5 conflict o/4/e1 false open",
	)
	tp.add(projection.Illegal, "o", pay("e4", 4))
	tp.add(projection.Applied, "o", ship("e4", 4)) // the correction: all letters before it are closed
	tp.order("o", 5, "delivered", "ok")
	tp.letters(
		"1 conflict o/3/bad false open",
		"3 unsupported o/4/new true superseded",
		"5 conflict o/4/e1 false open",
		"8 illegal o/4/e4 true superseded",
	)
}

func TestTwoParkedEventsClaimOneVersion(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	tp.add(projection.Parked, "o", deliver("bad", 2))
	tp.add(projection.Parked, "o", pay("good", 2))
	tp.add(projection.Applied, "o", create("e1"))
	tp.order("o", 2, "paid", "ok")
	tp.letters("0 illegal o/2/bad true superseded")
}

func TestBlocked(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	tp.add(projection.Applied, "o", create("e1"))
	tp.add(projection.Illegal, "o", deliver("e2", 2))
	tp.add(projection.Parked, "o", pack("e3", 3))
	tp.order("o", 1, "pending", "blocked")
	tp.add(projection.Illegal, "o", deliver("e2", 2)) // again: another letter
	tp.add(projection.Unsupported, "o", ev("e2", 2, "OrderGiftWrapped", `[]`))
	tp.add(projection.Duplicate, "o", create("e1"))
	tp.add(projection.Applied, "o", pay("e2", 2))
	tp.order("o", 3, "packed", "ok")
	tp.letters("1 illegal o/2/e2 true superseded", "3 illegal o/2/e2 true superseded", "4 unsupported o/2/e2 true superseded")
}

func TestBlockedBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	tp.add(projection.Illegal, "o", pay("e1", 1))
	tp.order("o", 0, "", "blocked")
	tp.add(projection.Applied, "o", create("e1"))
	tp.order("o", 1, "pending", "ok")
}

func TestInvalidRecordsBlockTheirVersion(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	bad := func(id string, version int) string {
		return strings.Replace(pay(id, version), `"19.99"`, `"19.999"`, 1)
	}
	tp.add(projection.Invalid, "o", bad("e3", 3)) // 0: two versions ahead: blocks only when it is next
	if row := tp.fold.Result().Order("o"); row != nil {
		t.Errorf("an order that waits for nothing: %+v", row)
	}
	tp.add(projection.Applied, "o", create("e1"))
	tp.order("o", 1, "pending", "ok")
	tp.add(projection.Applied, "o", pay("e2", 2))
	tp.order("o", 2, "paid", "blocked")
	tp.add(projection.Invalid, "o", bad("e2", 2)) // 3: overtaken already: blocks nothing
	tp.add(projection.Applied, "o", pack("e3", 3))
	tp.order("o", 3, "packed", "ok")
	tp.raw(projection.Invalid, nil, []byte(bad("e4", 4)))
	tp.order("o", 3, "packed", "blocked")
	tp.letters("0 invalid o/3/e3 true superseded", "3 invalid o/2/e2 false open", "5 invalid o/4/e4 true open")
}

func TestWhatIsReadOfInvalidRecords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 201)
	for name, c := range map[string]struct {
		key   []byte
		value string
		want  string // order/version/event blocks
	}{
		"garbage":              {[]byte("o"), `{`, "o/0/ false"},
		"empty":                {[]byte("o"), ``, "o/0/ false"},
		"garbage, null key":    {nil, `{`, "/0/ false"},
		"garbage, empty key":   {[]byte{}, `{`, "/0/ false"},
		"garbage, binary key":  {[]byte{0xFF}, `{`, "/0/ false"},
		"garbage, NUL key":     {[]byte("o\x00"), `{`, "/0/ false"},
		"garbage, long key":    {[]byte(long), `{`, "/0/ false"},
		"garbage, longest key": {[]byte(long[1:]), `{`, long[1:] + "/0/ false"},
		"another order":        {[]byte("x"), create("e1"), "x/0/ false"},
		"empty key":            {[]byte{}, create("e1"), "/0/ false"},
		"key with newline":     {[]byte("o\n"), create("e1"), "o\n/0/ false"},
		"trailing data":        {[]byte("o"), create("e1") + "1", "o/0/ false"},
		"duplicate name":       {[]byte("o"), strings.Replace(create("e1"), `{"event_id"`, `{"type":"x","event_id"`, 1), "o/0/ false"},
		"no version":           {[]byte("o"), strings.Replace(create("e1"), `"version"`, `"Version"`, 1), "o/0/e1 false"},
		"no event":             {[]byte("o"), strings.Replace(create("e1"), `"event_id"`, `"id"`, 1), "o/1/ true"},
		"no time":              {nil, strings.Replace(create("e1"), `"occurred_at"`, `"at"`, 1), "o/1/e1 true"},
		"no order":             {[]byte("o"), strings.Replace(create("e1"), `"order_id"`, `"id"`, 1), "o/0/ false"},
		"no order, null key":   {nil, strings.Replace(create("e1"), `"order_id"`, `"id"`, 1), "/0/ false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tp := newTopic(t)
			tp.raw(projection.Invalid, c.key, []byte(c.value))
			fields := strings.SplitN(c.want, " ", 2)
			tp.letters("0 invalid " + fields[0] + " " + fields[1] + " open")
		})
	}
}

func TestTombstonesAndMarkers(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	tp.add(projection.Applied, "o", create("e1"))
	tp.raw(projection.Ignored, []byte("o"), nil)
	tp.order("o", 1, "pending", "ok")
	tp.fold.Add(projection.Record{TopicPartition: tp.log, Offset: 9, Control: true})
	account := tp.fold.Result().Partitions[tp.log]
	if account.NextOffset != 10 || account.Counts.Total() != 2 || account.Counts[projection.Ignored] != 1 {
		t.Errorf("account: %+v", account)
	}
	tp.fold.Advance(tp.log, 5) // never back
	tp.fold.Advance(projection.TopicPartition{Topic: "orders.events", Partition: 3}, 7)
	result := tp.fold.Result()
	if result.Partitions[tp.log].NextOffset != 10 || len(result.Partitions) != 2 {
		t.Errorf("partitions: %+v", result.Partitions)
	}
	if result.Counts().Total() != 2 {
		t.Errorf("counts: %v", result.Counts())
	}
}

func TestFarAhead(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	tp.add(projection.Applied, "o", create("e1"))
	tp.add(projection.Parked, "o", strings.Replace(pack("far", 2), `"version":2`, `"version":9007199254740993`, 1))
	tp.add(projection.Parked, "o", strings.Replace(pack("far", 2), `"version":2`, `"version":9223372036854775807`, 1))
	tp.order("o", 1, "pending", "waiting")
	if parked := tp.fold.Result().Parked; parked[0].Version != 1<<53+1 {
		t.Errorf("parked: %+v", parked)
	}
}

// A long order costs the same per event at its end as at its start, also when
// it comes backwards.
func TestLongOrderBackwards(t *testing.T) {
	t.Parallel()
	tp := newTopic(t)
	const n = 3000
	amend := func(v int) string {
		return fmt.Sprintf(`{"event_id":"e%d","order_id":"o","type":"OrderAmended","version":%d,"occurred_at":"2026-01-01T00:00:00Z",`+
			`"data":{"total":{"amount":1,"currency":"EUR"}}}`, v, v)
	}
	for v := n; v > 1; v-- {
		tp.add(projection.Parked, "o", amend(v))
	}
	tp.add(projection.Applied, "o", create("e1"))
	tp.order("o", n, "pending", "ok")
	tp.add(projection.Conflict, "o", strings.Replace(amend(n+1), fmt.Sprint(`"e`, n+1), fmt.Sprint(`"e`, n/2), 1))
}
