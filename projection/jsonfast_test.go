package projection

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Agree is agree, for tests outside of the package.
var Agree = agree

func agree(t *testing.T, key, value []byte) (fast bool) {
	t.Helper()
	rec := &Record{Key: key, Value: value}
	got, ok := decodeFast(rec)
	if !ok {
		return false
	}
	want, err := decodeStrict(rec)
	if err != nil {
		t.Fatalf("the fast path accepts %q, the strict decoder says: %v", value, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%q (-strict +fast):\n%s", value, diff)
	}
	return true
}

var fastSeeds = []struct {
	fast  bool
	value string
}{
	{true, `{"event_id":"e","order_id":"o","type":"OrderCreated.v1","version":1,"occurred_at":"2026-01-01T10:00:02Z","data":{"customer_id":"c","total":{"amount":"19.99","currency":"EUR"}}}`},
	{true, ` {"version":12, "type":"OrderPaid","order_id":"o","event_id":"e","occurred_at":"2026-01-01T10:00:02.1234567Z","data":{"payment_id":"p","customer_id":"c","amount":{"amount":19.99,"currency":"EUR"}}} `},
	{true, `{"event_id":"e","order_id":"o","type":"OrderRefunded.v1","version":3,"occurred_at":"1970-01-01T00:00:00.5Z","data":{"refund_id":"r","amount":{"currency":"JPY","amount":"100"},"gift":{"a":{"b":"c"}}}}`},
	{true, `{"event_id":"e","order_id":"o","type":"OrderShipped","version":4,"occurred_at":"9999-12-28T23:59:59.999999999Z","data":{"carrier":"dhl","tracking_number":"1"}}`},
	{true, `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{}}`},
	{true, `{"event_id":"e","order_id":"o","type":"OrderCancelled.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{"reason":"no"}}`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderCancelled.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{"reason":""}}`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":04,"occurred_at":"2026-01-01T10:00:02Z","data":{}}`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":4.0,"occurred_at":"2026-01-01T10:00:02Z","data":{}}`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":4,"occurred_at":"2026-02-30T10:00:02Z","data":{}}`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":4,"occurred_at":"2026-01-01T10:00:02.Z","data":{}}`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{}}x`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{"a":1,"a":2}}`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{"a":{"b":1,"b":2}}}`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{"a":1,}}`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderPacked.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{"a":01}}`},
	{false, `{"event_id":"e\u0041","order_id":"o","type":"OrderPacked.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{}}`},
	{false, `{"event_id":"e","order_id":"other","type":"OrderPacked.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{}}`},
	{false, `{"event_id":"e","order_id":"o","type":"OrderPaid.v1","version":4,"occurred_at":"2026-01-01T10:00:02Z","data":{"payment_id":"p","amount":{"amount":19.995,"currency":"EUR"}}}`},
}

func TestFastDecoder(t *testing.T) {
	for _, seed := range fastSeeds {
		if got := agree(t, []byte("o"), []byte(seed.value)); got != seed.fast {
			t.Errorf("fast is %v, want %v: %s", got, seed.fast, seed.value)
		}
	}
}

// FuzzFastDecoder: what the fast path accepts, the strict decoder accepts too,
// and reads the same out of it.
func FuzzFastDecoder(f *testing.F) {
	for _, seed := range fastSeeds {
		f.Add([]byte(seed.value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		agree(t, nil, value)
		agree(t, []byte("o"), bytes.Clone(value))
	})
}
