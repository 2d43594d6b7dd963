package app

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/kafkaio"
)

const (
	progressInterval = time.Minute
	// progressSilence is how long nothing may have flowed before the lines stop.
	progressSilence = time.Hour
)

// progressLine logs once a minute what was consumed.
type progressLine struct {
	status  func() kafkaio.Status
	records func() int64 // consumed so far
	letters func() int64 // made so far
	logger  *slog.Logger

	at          time.Time // the line before
	lastRecords int64
	lastLetters int64
	idleSince   time.Time
	silent      bool
}

// run writes lines until ctx ends.
func (p *progressLine) run(ctx context.Context) {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	p.at = time.Now()
	p.idleSince, p.lastRecords, p.lastLetters = p.at, p.records(), p.letters()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			p.write(now)
		}
	}
}

func (p *progressLine) write(now time.Time) {
	status := p.status()
	lag, positions := int64(0), make([]string, 0, len(status.Partitions))
	for _, s := range status.Partitions {
		lag += s.Lag
		positions = append(positions, fmt.Sprintf("%d:%d", s.Partition, s.Position))
	}
	records, letters := p.records(), p.letters()
	consumed, made, took := records-p.lastRecords, letters-p.lastLetters, now.Sub(p.at)
	p.at, p.lastRecords, p.lastLetters = now, records, letters
	if consumed > 0 || made > 0 || lag > 0 {
		p.idleSince, p.silent = now, false
	}
	if now.Sub(p.idleSince) >= progressSilence {
		if !p.silent {
			p.logger.Info("nothing was consumed for an hour, and nothing waits: the next line comes with the next record", "positions", strings.Join(positions, " "))
		}
		p.silent = true
		return
	}
	p.logger.Info("progress", "records", consumed, "per_second", math.Round(10*float64(consumed)/took.Seconds())/10, "lag", lag, "letters", made,
		"positions", strings.Join(positions, " "))
}

// consumedRecords adds up the records that a member has counted.
func consumedRecords(gatherer prometheus.Gatherer) int64 {
	families, err := gatherer.Gather()
	if err != nil && len(families) == 0 {
		return 0
	}
	sum := 0.0
	for _, family := range families {
		if name := family.GetName(); name == "orderprojector_events_total" || name == "orderprojector_reread_records_total" {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return int64(sum)
}
