package projection_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/domain/order/schemas"
	"github.com/orderprojector/orderprojector/outbox/relay"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

var update = flag.Bool("update", false, "write how the golden events are decoded")

// decodedEvent is what is expected of a golden event, whichever format it comes in.
type decodedEvent struct {
	EventID    string      `json:"event_id"`
	OrderID    string      `json:"order_id"`
	Type       string      `json:"type"`
	Version    int64       `json:"version"`
	OccurredAt time.Time   `json:"occurred_at"`
	Meaning    order.Type  `json:"meaning"`
	Event      order.Event `json:"event"`
}

// goldenRecords are the same event as producers wrote it once. The files are never
// written again: what was published stays readable.
func goldenRecords(t *testing.T, name string) map[string]projection.Record {
	t.Helper()
	read := func(file string) []byte {
		content, err := os.ReadFile(filepath.Join("testdata", "events", name, file))
		if err != nil {
			t.Fatalf("a schema without golden events: %v", err)
		}
		return content
	}
	records := map[string]projection.Record{
		"plain":      {Value: read("plain.json")},
		"structured": {Value: read("structured.json"), Headers: []projection.Header{{Key: "content-type", Value: []byte("application/cloudevents+json; charset=UTF-8")}}},
	}
	inHeaders := projection.Record{Value: read("binary.json")}
	for line := range strings.Lines(string(read("binary.headers"))) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		inHeaders.Headers = append(inHeaders.Headers, projection.Header{Key: key, Value: []byte(value)})
	}
	records["binary"] = inHeaders
	return records
}

// Golden events of every type and version, in every format, are read by this code, and mean the same in all of them.
func TestGoldenEvents(t *testing.T) {
	t.Parallel()
	all, err := schemas.All()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range all {
		known[s.Name()] = true
		t.Run(s.Name(), func(t *testing.T) {
			path := filepath.Join("testdata", "events", s.Name(), "decoded.json")
			var first *projection.Envelope
			for format, rec := range goldenRecords(t, s.Name()) {
				env, err := projection.EventDecoder{}.Decode(&rec)
				if err != nil {
					t.Fatalf("%s: %v", format, err)
				}
				if env.Digest != projection.RecordDigest(&rec) {
					t.Errorf("%s: the digest is not the record's", format)
				}
				if first == nil {
					first = &env
				}
				if format == "plain" {
					publishedAsCloudEvent(t, &env, rec.Value)
				}
				if !projection.SameEvent(first, &env) {
					t.Errorf("%s says something else", format)
				}
				got, err := json.MarshalIndent(decodedEvent{env.EventID, env.OrderID, env.Type, env.Version, env.OccurredAt, env.Event.Type(), env.Event}, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				if *update {
					if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.TrimSuffix(string(want), "\n"), string(got)); diff != "" {
					t.Errorf("%s is decoded in another way (-want +got):\n%s", format, diff)
				}
			}
		})
	}
	kept, err := os.ReadDir(filepath.Join("testdata", "events"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range kept {
		if !known[entry.Name()] {
			t.Errorf("golden events of %s have no schema any more: what was published stays readable", entry.Name())
		}
	}
}

// publishedAsCloudEvent checks what the relay makes of a plain event against this decoder and the official SDK.
func publishedAsCloudEvent(t *testing.T, want *projection.Envelope, payload []byte) {
	t.Helper()
	encoded, err := relay.Encoder{Format: relay.CloudEvents, Source: "/shop"}.Encode(&relay.Message{
		EventID: want.EventID, OrderID: want.OrderID, Type: want.Type, Version: want.Version, Payload: payload,
	})
	if err != nil {
		t.Fatal(err)
	}
	rec := projection.Record{Key: encoded.Key, Value: encoded.Value, Headers: encoded.Headers}
	got, err := projection.EventDecoder{}.Decode(&rec)
	if err != nil || !projection.SameEvent(want, &got) || got.Event != want.Event {
		t.Errorf("published as a CloudEvent it is %+v, %v", got, err)
	}
	if _, err := projectiontest.ReadCloudEvent(&rec); err != nil {
		t.Errorf("published, it is no CloudEvent: %v", err)
	}
}
