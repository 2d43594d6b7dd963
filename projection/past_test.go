package projection_test

import (
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

func TestPast(t *testing.T) {
	t.Parallel()
	log := projectiontest.NewLog("orders.events", projection.TopicID{3}, 1)
	var ledger []projection.LedgerEntry
	add := func(state order.State, at, value string) {
		version := int64(len(ledger) + 1)
		rec := log.Append(0, projection.Record{Key: []byte("o"), Value: []byte(value)})
		env, err := projection.JSONDecoder{}.Decode(&rec)
		if err != nil {
			t.Fatal(err)
		}
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		ledger = append(ledger, projection.LedgerEntry{
			Version: version, EventID: env.EventID, Type: env.Type, State: state, OccurredAt: when, Digest: env.Digest, Offset: rec.Offset,
		})
	}
	head := func(id string, version, typ, at string) string {
		return `{"event_id":"` + id + `","order_id":"o","type":"` + typ + `","version":` + version + `,"occurred_at":"` + at + `","data":`
	}
	add(order.StatePending, "2026-01-01T10:00:00Z", head("e1", "1", "OrderCreated.v1", "2026-01-01T10:00:00Z")+`{"customer_id":"c","total":{"amount":"5","currency":"EUR"}}}`)
	add(order.StatePending, "2026-01-01T12:00:00Z", head("e2", "2", "OrderAmended.v1", "2026-01-01T12:00:00Z")+`{"total":{"amount":"7","currency":"EUR"}}}`)
	ledger = append(ledger, projection.LedgerEntry{Version: 3, Type: projection.TypeSkipped, State: order.StatePending, Partition: -1, Offset: -1})
	add(order.StatePaid, "2026-01-01T11:00:00Z", head("e4", "4", "OrderPaid.v1", "2026-01-01T11:00:00Z")+`{"payment_id":"p","amount":{"amount":"7","currency":"EUR"}}}`)

	past := func() []projection.Moment {
		moments, err := projection.Past(t.Context(), log.Partition(0), ledger, nil, log, projection.JSONDecoder{})
		if err != nil {
			t.Fatal(err)
		}
		return moments
	}
	all := past()
	for i, want := range []order.Order{
		{State: order.StatePending, CustomerID: "c", Currency: "EUR", TotalMinor: 500},
		{State: order.StatePending, CustomerID: "c", Currency: "EUR", TotalMinor: 700},
		{State: order.StatePending, CustomerID: "c", Currency: "EUR", TotalMinor: 700},
		{State: order.StatePaid, CustomerID: "c", Currency: "EUR", TotalMinor: 700, PaidMinor: 700},
	} {
		if m := all[i]; m.Order != want || !m.MoneyKnown || m.Gone {
			t.Errorf("version %d: %+v", i+1, m)
		}
	}
	for at, want := range map[string]int{
		"2026-01-01T09:00:00Z": 0, "2026-01-01T10:00:00Z": 1, "2026-01-01T11:30:00Z": 1, "2026-01-01T12:00:00Z": 4, "2030-01-01T00:00:00Z": 4,
	} {
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if n := projection.MomentAt(all, when); n != want {
			t.Errorf("at %s: %d versions, want %d", at, n, want)
		}
	}

	log.Truncate(0, 2) // the amendment is gone, and the creation
	all = past()
	if !all[0].Gone || !all[1].Gone || all[2].Gone || all[3].Gone {
		t.Errorf("%+v", all)
	}
	if m := all[3]; m.MoneyKnown || m.Order != (order.Order{State: order.StatePaid}) || m.Data == nil {
		t.Errorf("%+v", m)
	}
	ledger[3].Digest[0]++ // another record is in its place
	if all = past(); !all[3].Gone {
		t.Errorf("%+v", all[3])
	}
}
