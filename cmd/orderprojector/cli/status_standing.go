package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

const (
	// stillAfter is how long a watermark may stay behind the end of its log before its partition is looked at twice.
	stillAfter = 10 * time.Second
	// secondLook is how much later that is. A partition that was idle, and has just got a record, moves meanwhile.
	secondLook = 2 * time.Second
	// longSnapshot is for how long vacuum may be held back without a word.
	longSnapshot = 15 * time.Minute
)

// standing is something that stands still, or slows everything down, and what can be done.
type standing struct {
	What string `json:"what"`
	Hint string `json:"hint,omitempty"`
}

// standing lists what stands still, as the database and Kafka see it. No member has to run. A question that is not answered leaves its part out.
func (env *Env) standing(ctx context.Context, reader *pgstore.Reader, cfg config.Config, v statusView) []standing {
	all := []standing{}
	if orphaned := v.orphaned(cfg.Kafka.Topic); len(orphaned) > 0 {
		if len(v.Members) == 0 {
			all = append(all, standing{"no member of this program runs in group " + v.Group, "start one: orderprojector run"})
		} else {
			err := &app.OrphanedError{Group: v.Group, Topic: cfg.Kafka.Topic, Partitions: orphaned}
			all = append(all, standing{err.Error(), err.Hint()})
		}
	}
	all = append(all, v.stopped(ctx, reader)...)
	for _, h := range v.HeldOldest {
		all = append(all, standing{
			fmt.Sprintf("order %s: the record at offset %d of %s-%d has failed %d times since %s: %s",
				optionalCell(h.OrderID), h.KafkaOffset, h.KafkaTopic, h.KafkaPartition, h.Failures, timeCell(&h.HeldAt), h.Cause),
			"it is tried again by itself, and once its cause has ended its order goes on",
		})
	}
	waits, err := reader.Waits(ctx)
	for _, w := range waits {
		all = append(all, standing{w.String(), w.Hint()})
	}
	holders, holdersErr := reader.SnapshotHolders(ctx)
	for _, h := range holders {
		if h.Seconds == nil || *h.Seconds < longSnapshot.Seconds() {
			continue
		}
		age := time.Duration(*h.Seconds * float64(time.Second)).Round(time.Second)
		all = append(all, standing{fmt.Sprintf("%s has held back vacuum for %s, which makes batches slow", h.Name, age), "end it, or have it commit"})
		break
	}
	for _, err := range []error{err, holdersErr} {
		if err != nil {
			fmt.Fprintln(env.Stderr, "what the database waits for is left out:", err)
		}
	}
	return all
}

// orphaned lists the topic's partitions that no running member reads.
func (v *statusView) orphaned(topic string) (orphaned []int32) {
	for _, p := range v.Partitions {
		read := slices.ContainsFunc(v.Members, func(m pgstore.MemberState) bool {
			return m.KafkaTopic == topic && slices.Contains(m.Partitions, p.KafkaPartition)
		})
		if p.KafkaTopic == topic && !read {
			orphaned = append(orphaned, p.KafkaPartition)
		}
	}
	return orphaned
}

// stopped lists the partitions whose records wait although the group may consume.
func (v *statusView) stopped(ctx context.Context, reader *pgstore.Reader) (all []standing) {
	waiting := func(p partitionView) bool {
		return p.Lag != nil && *p.Lag > 0 && p.Watermark != nil && p.AgeSeconds > stillAfter.Seconds()
	}
	if v.Consumption.State != "running" || !slices.ContainsFunc(v.Partitions, waiting) {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(secondLook):
	}
	later, err := reader.Status(ctx, v.Group)
	if err != nil {
		return nil
	}
	for _, p := range v.Partitions {
		moved := !slices.ContainsFunc(later.Partitions, func(l pgstore.PartitionState) bool {
			return l.KafkaTopic == p.KafkaTopic && l.KafkaPartition == p.KafkaPartition && l.Watermark == *p.Watermark
		})
		if waiting(p) && !moved {
			all = append(all, standing{
				fmt.Sprintf("%s-%d: %d records wait from offset %d on, and none was made durable for %s", p.KafkaTopic, p.KafkaPartition, *p.Lag, *p.Watermark,
					time.Duration(p.AgeSeconds*float64(time.Second)).Round(time.Second)),
				"its member says why: /healthz/consumption" + hostsOf(v.Members, p.KafkaPartition),
			})
		}
	}
	return all
}

func hostsOf(members []pgstore.MemberState, partition int32) string {
	for _, m := range members {
		if slices.Contains(m.Partitions, partition) {
			return fmt.Sprintf(" of process %d on %s", m.ProcessID, m.Host)
		}
	}
	return ""
}

func membersCell(members []pgstore.MemberState) string {
	if len(members) == 0 {
		return "none runs"
	}
	var texts []string
	for _, m := range members {
		var partitions []string
		for _, p := range m.Partitions {
			partitions = append(partitions, strconv.Itoa(int(p)))
		}
		texts = append(texts, fmt.Sprintf("process %d on %s reads %s", m.ProcessID, m.Host, textCell(strings.Join(partitions, ","))))
	}
	return strings.Join(texts, "; ")
}
