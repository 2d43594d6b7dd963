package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// replayBounds are the flags that say from where to where.
type replayBounds struct {
	earliest                bool
	fromOffset, untilOffset *int64
	fromTime, untilTime     *time.Time
	fromText, untilText     string // the times as they were given
	partitions              []int32
}

// replayStretch is what is replayed of one partition.
type replayStretch struct {
	Partition int32  `json:"kafka_partition"`
	LogStart  int64  `json:"log_start"`
	LogEnd    int64  `json:"log_end"`
	Watermark int64  `json:"watermark"`
	From      int64  `json:"from_offset"`
	Until     int64  `json:"until_offset"` // exclusive
	Next      int64  `json:"next_offset"`  // everything below is done
	Note      string `json:"note,omitempty"`
	log       projection.TopicPartition
	none      bool // there is no record at or after the time
}

// splitTopic takes the partitions off a topic, as in orders.events:0,1.
func splitTopic(text string) (topic string, partitions []int32, err error) {
	topic, list, given := strings.Cut(text, ":")
	if !given {
		return topic, nil, nil
	}
	for _, part := range strings.Split(list, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
		if err != nil || n < 0 {
			return "", nil, usageError("--topic %q: %q is not a partition", text, part)
		}
		partitions = append(partitions, int32(n))
	}
	slices.Sort(partitions)
	return topic, slices.Compact(partitions), nil
}

// replayPlan works out what is replayed. What cannot be done as it was asked for is
// refused as a whole.
func replayPlan(ctx context.Context, r *reading, b replayBounds) ([]replayStretch, error) {
	topic := r.cfg.Kafka.Topic
	ranges, err := r.log.Ranges(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, partition := range b.partitions {
		if int(partition) >= len(ranges) {
			return nil, usageError("%s has no partition %d: it has %d", topic, partition, len(ranges))
		}
	}
	var from, until map[int32]int64
	if b.fromTime != nil {
		if from, err = r.log.OffsetsAt(ctx, topic, *b.fromTime); err != nil {
			return nil, err
		}
	}
	if b.untilTime != nil {
		if until, err = r.log.OffsetsAt(ctx, topic, *b.untilTime); err != nil {
			return nil, err
		}
	}
	var marks map[int32]projection.Watermark
	if len(ranges) > 0 {
		if marks, err = r.reader.Watermarks(ctx, r.cfg.Kafka.Group, topic, ranges[0].TopicID); err != nil {
			return nil, err
		}
	}
	var plan []replayStretch
	for _, pr := range ranges {
		if len(b.partitions) > 0 && !slices.Contains(b.partitions, pr.Partition) {
			continue
		}
		s := replayStretch{Partition: pr.Partition, LogStart: pr.From, LogEnd: pr.Until, From: pr.From, Until: pr.Until, log: pr.TopicPartition}
		if err := s.bound(b, from, until); err != nil {
			return nil, err
		}
		mark, found := marks[pr.Partition]
		s.clip(mark.NextOffset, found)
		s.Next = s.From
		plan = append(plan, s)
	}
	return plan, nil
}

// bound applies what was asked for.
func (s *replayStretch) bound(b replayBounds, from, until map[int32]int64) error {
	for _, o := range []struct {
		flag string
		at   *int64
	}{{"--from-offset", b.fromOffset}, {"--until-offset", b.untilOffset}} {
		switch {
		case o.at == nil:
		case *o.at > s.LogEnd:
			return usageError("%s %d is beyond the end of %s, which is %d: nothing was done", o.flag, *o.at, s.log, s.LogEnd)
		case *o.at < s.LogStart:
			return &Error{
				Code: ExitUsage, Err: fmt.Errorf("%s %d is below the start of %s, which is %d: nothing was done", o.flag, *o.at, s.log, s.LogStart),
				Advice: "retention removed what was there: use --from-earliest, or name the partitions with --topic",
			}
		}
	}
	if b.fromOffset != nil {
		s.From = *b.fromOffset
	}
	if b.untilOffset != nil {
		s.Until = *b.untilOffset
	}
	if at, asked := until[s.Partition]; asked && at != projection.NoOffset {
		s.Until = at
	}
	if at, asked := from[s.Partition]; asked {
		if s.From = at; at == projection.NoOffset {
			s.none = true
			s.From, s.Until = s.LogEnd, s.LogEnd
			s.Note = "no record at or after " + b.fromText
		}
	}
	s.Until = max(s.Until, s.From)
	return nil
}

// clip leaves to the members what they have not projected yet.
func (s *replayStretch) clip(mark int64, found bool) {
	s.Watermark = mark
	switch {
	case s.none:
	case !found:
		s.Until = s.From
		s.Note = "the group has no watermark: nothing of it is projected yet"
	case s.Until > mark:
		left := s.Until - max(mark, s.From)
		s.Until = max(mark, s.From)
		s.Note = fmt.Sprintf("%d offsets above the watermark are left to the members", left)
	}
}
