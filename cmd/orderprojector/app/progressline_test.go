package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/kafkaio"
)

func TestProgressLines(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var records, letters, lag int64
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := &progressLine{
		status: func() kafkaio.Status {
			return kafkaio.Status{Partitions: []kafkaio.PartitionStatus{{Partition: 0, Position: 7 + records}, {Partition: 3, Position: 9, Lag: lag}}}
		},
		records: func() int64 { return records }, letters: func() int64 { return letters },
		logger: slog.New(slog.NewTextHandler(&log, nil)), at: now, idleSince: now,
	}
	minutes := func(n int, want ...string) {
		t.Helper()
		log.Reset()
		for range n {
			now = now.Add(time.Minute)
			p.write(now)
		}
		lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
		if log.Len() == 0 {
			lines = nil
		}
		if len(lines) < len(want) || len(want) == 0 && len(lines) > 0 {
			t.Fatalf("%d lines:\n%s", len(lines), log.String())
		}
		for i, w := range want {
			if line := lines[len(lines)-len(want)+i]; !strings.Contains(line, w) {
				t.Errorf("%s\nwanted %s", line, w)
			}
		}
	}
	records, letters = 90, 2
	minutes(1, `msg=progress records=90 per_second=1.5 lag=0 letters=2 positions="0:97 3:9"`)
	minutes(1, "records=0 per_second=0 lag=0 letters=0")
	minutes(58, "records=0 per_second=0")
	minutes(1, "nothing was consumed for an hour")
	minutes(600)
	lag = 5
	minutes(100, "records=0 per_second=0 lag=5") // what waits is told for ever
	lag, records = 0, 95
	minutes(1, "records=5 per_second=0.1")
}
