//go:build unix

// Package integration tests the whole program against a real Kafka and a real
// PostgreSQL. Each test has a topic, a group and a database of its own, and is
// judged per event: what the program made of the topic is compared, row by row and
// count by count, with an independent fold of it.
package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate/publish"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
	"github.com/orderprojector/orderprojector/projection/reference/compare"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patience is how long a test waits for what must happen, where the
// guarantees name no time.
const patience = 60 * time.Second

// recovery is how soon the program works again after an outage, and how soon the partitions of a
// killed member are read again.
const recovery = 15 * time.Second

// randomSeed returns a seed and prints it. ORDERPROJECTOR_TEST_SEED repeats a run.
func randomSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64N(1 << 32)
	if text := os.Getenv("ORDERPROJECTOR_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (ORDERPROJECTOR_TEST_SEED=%d repeats it)", seed, seed)
	return seed
}

// world is what one test has to itself.
type world struct {
	t       *testing.T
	brokers []string // where the test itself produces and looks
	dsn     string   // where the test itself looks
	topic   string
	group   string
	// What the program is told: the same, unless the test puts something in between.
	programBrokers []string
	programDSN     string

	client *kgo.Client
	admin  *kadm.Client
	reader *kafkaio.TopicReader
	db     *pgxpool.Pool
	// commits fails the test when a committed offset goes back.
	commits *testenv.OffsetSampler

	fold   *reference.Fold
	folded map[projection.TopicPartition]int64 // what the fold has seen
}

// worldConfig says where a world is. Zero values mean the shared services.
type worldConfig struct {
	brokers    []string
	dsn        string // of a database with the schema
	partitions int32
	topic      []string // topic parameters, key=value
	// lossy says that the database will lose commits, so that the committed
	// offsets may be ahead of it for a while.
	lossy bool
}

// newWorld makes a topic, a group and a database, and watches over them.
func newWorld(t *testing.T, c worldConfig) *world {
	t.Helper()
	w := &world{t: t, brokers: c.brokers, dsn: c.dsn, group: testenv.Name(t), folded: map[projection.TopicPartition]int64{}}
	if w.brokers == nil {
		w.brokers = testenv.SharedKafka(t)
	}
	if w.dsn == "" {
		w.dsn = testenv.Database(t)
	}
	if c.partitions == 0 {
		c.partitions = 4
	}
	w.programBrokers, w.programDSN = w.brokers, w.dsn
	w.fold = reference.NewFold()
	w.topic = testenv.TopicOn(t, w.brokers, c.partitions, c.topic...)
	w.admin = testenv.Admin(t, w.brokers)
	var err error
	w.client, err = kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.DefaultProduceTopic(w.topic),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.RecordPartitioner(partitioner()))
	must(t, err)
	t.Cleanup(w.client.Close)
	w.reader, err = kafkaio.NewTopicReader(kafkaio.ClientConfig{SeedBrokers: w.brokers}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(w.reader.Close)
	w.db, err = pgxpool.New(t.Context(), w.dsn)
	must(t, err)
	t.Cleanup(w.db.Close)
	w.watchRows()
	w.commits = testenv.StartOffsetSampler(t, w.brokers, w.group, w.topic)
	if !c.lossy {
		w.watchCommits()
	}
	return w
}

// partitioner takes the partition that a record names, and otherwise the one of its key.
func partitioner() kgo.Partitioner {
	byKey := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		p := byKey.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if r.Partition >= 0 && int(r.Partition) < n && len(r.Context.Value(chosen{}).(chosen).yes) > 0 {
				return int(r.Partition)
			}
			return p.Partition(r, n)
		}
	})
}
