//go:build unix

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/reference/compare"
)

// The tests start PostgreSQL, one after another.

func configuration(t *testing.T) Config {
	t.Helper()
	if testing.Short() {
		t.Skip("starts PostgreSQL")
	}
	return Config{
		Orders: 400, Seed: 3,
		Logger:   slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Progress: progress.New(io.Discard, true),
		PrintTimeline: func(w io.Writer, timeline pgstore.Timeline) error {
			_, err := fmt.Fprintf(w, "timeline of %s: %s\n", timeline.OrderID, timeline.ProjectionStatus)
			return err
		},
	}
}

func TestDemonstration(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var out bytes.Buffer
	if err := Run(t.Context(), configuration(t), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := out.String()
	for _, part := range []string{
		"of 400 orders", "late repeat", "OUTCOME", "applied", "PARTITION 3", "every record is exactly one of these",
		"orders placed", "receiver told of them", "A clean order.", "An order with duplicates", "out of order", "A blocked order", "timeline of o-3-", "\nverified: ",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
	if strings.Contains(text, "Ctrl-C") {
		t.Error("it offers to stay up")
	}
}

// With Serve everything is there until the context ends.
func TestServe(t *testing.T) {
	c := configuration(t)
	c.Serve, c.Orders = true, 50
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		result <- Run(ctx, c, writer)
		_ = writer.Close()
	}()
	var text strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(text.String(), "psql ") {
		n, err := reader.Read(buffer)
		if err != nil {
			t.Fatalf("it ended: %v\n%s", <-result, text.String())
		}
		text.Write(buffer[:n])
	}
	address := regexp.MustCompile(`http://[^/]+/livez`).FindString(text.String())
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", address, response.Status)
	}
	cancel()
	if err := <-result; err != nil {
		t.Errorf("after the end of serving: %v", err)
	}
}

func TestInterrupted(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithCancel(t.Context())
	c := configuration(t)
	c.Orders = 1_000_000 // not to be finished
	c.Progress = progress.New(writerFunc(func(p []byte) {
		if bytes.Contains(p, []byte("projected")) {
			cancel()
		}
	}), true)
	if err := Run(ctx, c, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestDifferencesAreShown(t *testing.T) {
	report := &compare.Report{Total: 2000}
	for range compare.Limit {
		report.Differences = append(report.Differences, compare.Difference{Relation: "orders", Row: `"o"`, Column: "state", Expected: "paid", Got: "packed"})
	}
	var out bytes.Buffer
	printDifferences(&out, report)
	text := out.String()
	if !strings.Contains(text, "2000 differences") || !strings.Contains(text, `state of "o" is packed, expected paid`) ||
		!strings.Contains(text, "and 1970 more") || strings.Count(text, "\n") > 40 {
		t.Error(text)
	}
}
