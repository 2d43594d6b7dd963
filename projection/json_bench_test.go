package projection_test

import (
	"testing"

	"github.com/orderprojector/orderprojector/projection"
)

func BenchmarkDecode(b *testing.B) {
	rec := projection.Record{Key: []byte("o-1001"), Value: []byte(`{"event_id":"0198c0de-0000-7000-8000-000000000001","order_id":"o-1001","type":"OrderPaid.v1","version":2,"occurred_at":"2026-01-01T10:00:02.123456Z","data":{"payment_id":"p-9","customer_id":"c-7","amount":{"amount":"19.99","currency":"EUR"}}}`)}
	b.SetBytes(int64(len(rec.Value)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (projection.JSONDecoder{}).Decode(&rec); err != nil {
			b.Fatal(err)
		}
	}
}
