package relay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func stored(payload string) *Message {
	return &Message{Seq: 1, EventID: "e-1", OrderID: "o-1", Type: "OrderPacked.v1", Version: 3, Payload: []byte(payload)}
}

const packed = `{"event_id":"e-1","order_id":"o-1","type":"OrderPacked.v1","version":3,"occurred_at":"2026-01-01T10:00:00Z","data":{}}`

// What consumers could not read, or would read as something else than the row says, is not published. What this release
// does not know is: consumers may.
func TestEncodeRefusesWhatNobodyCanRead(t *testing.T) {
	t.Parallel()
	for _, format := range Formats() {
		e := Encoder{Format: format, Source: "/orders"}
		if _, err := e.Encode(stored(packed)); err != nil {
			t.Errorf("%s: %v", format, err)
		}
		unknown := stored(strings.Replace(packed, "OrderPacked.v1", "OrderGiftWrapped.v3", 1))
		unknown.Type = "OrderGiftWrapped.v3"
		if _, err := e.Encode(unknown); err != nil {
			t.Errorf("%s, unknown type: %v", format, err)
		}
		for name, m := range map[string]*Message{
			"another order":   stored(strings.Replace(packed, "o-1", "o-2", 1)),
			"another event":   stored(strings.Replace(packed, "e-1", "e-2", 1)),
			"another version": stored(strings.Replace(packed, `"version":3`, `"version":4`, 1)),
			"another type":    stored(strings.Replace(packed, "OrderPacked", "OrderDelivered", 1)),
			"no time":         stored(strings.Replace(packed, "occurred_at", "at", 1)),
			"not JSON":        stored("{"),
		} {
			var refusal *Refusal
			if _, err := e.Encode(m); !errors.As(err, &refusal) || refusal.Reason != Invalid {
				t.Errorf("%s, %s: %v", format, name, err)
			}
		}
	}
}

// Plain JSON is published as it is stored, byte for byte.
func TestEncodeKeepsTheBytes(t *testing.T) {
	t.Parallel()
	odd := strings.Replace(packed, `"data":{}`, `"data" : { "n":1.50 , "n2":1e2 }, "more":null`, 1)
	r, err := Encoder{Format: JSON}.Encode(stored(odd))
	if err != nil || string(r.Value) != odd || string(r.Key) != "o-1" || r.Headers != nil {
		t.Errorf("%s, %v, %v", r.Value, r.Headers, err)
	}
}

// Health tells what somebody has to end at once, and what ends by itself only when it lasts.
func TestHealth(t *testing.T) {
	t.Parallel()
	var h health
	if err := h.err(time.Hour); err != nil {
		t.Error(err)
	}
	h.failed(&Failure{Class: Broker, Err: errors.New("away")})
	if err := h.err(time.Hour); err != nil {
		t.Error(err)
	}
	if err := h.err(0); err == nil || !strings.Contains(err.Error(), "away") {
		t.Error(err)
	}
	if repeats := h.failed(&Failure{Class: Forbidden, Err: errors.New("no grant"), Advice: "grant it"}); repeats != 0 {
		t.Errorf("a new class is the failure number %d", repeats)
	}
	var hint interface{ Hint() string }
	if err := h.err(time.Hour); !errors.As(err, &hint) || hint.Hint() != "grant it" {
		t.Error(err)
	}
	h.works()
	h.stands(Standing{Orders: 2, Order: "o-1", Detail: "too_large"}, Waiting{Message: &Message{Seq: 7, OrderID: "o-2", Version: 3}, Since: time.Now().Add(-time.Minute), Trouble: "closed"})
	if err := h.err(time.Hour); err == nil || !strings.Contains(err.Error(), `"o-1"`) || strings.Contains(err.Error(), "o-2") {
		t.Error(err)
	}
	if err := h.err(time.Minute); err == nil || !strings.Contains(err.Error(), `message 7 of order "o-2", version 3, waits for its acknowledgement for 1m0s; closed`) {
		t.Error(err)
	}
	h.standby() // that is another relay's business now
	if err := h.err(0); err != nil {
		t.Error(err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{}); err == nil {
		t.Error("a relay of nothing")
	}
	for _, e := range []Encoder{{}, {Format: "xml"}, {Format: CloudEvents}} {
		cfg := Config{Open: openNothing, OpenTopic: func() (Topic, error) { return nil, nil }, Encoder: e}
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is accepted", e)
		}
	}
}

func openNothing(context.Context) (Queue, error) { return nil, ErrStandby }
